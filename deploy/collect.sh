# shellcheck shell=bash
# For image.sh and oci.sh: what a program needs, so that an image has nothing else.

# collect FILE ROOT NAME: the program as ROOT/usr/bin/NAME, its libraries and its loader where it looks for them.
collect() {
  install -D "$1" "$2/usr/bin/$3"
  local library
  # A static program loads none, and ldd says so with a failure.
  { ldd "$1" 2>/dev/null || true; } |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' |
    while read -r library; do
      install -D "$library" "$2$library"
    done
}
