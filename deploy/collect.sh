# shellcheck shell=bash
# For image.sh and oci.sh: what a program needs, so that an image has nothing else.

# collect FILE ROOT NAME: the program as ROOT/usr/bin/NAME, its libraries and its loader where it looks for them, and the
# licences of what Debian's packages have of these.
collect() {
  install -D "$1" "$2/usr/bin/$3"
  licence "$1" "$2"
  local library
  # A static program loads none, and ldd says so with a failure.
  { ldd "$1" 2>/dev/null || true; } |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' |
    while read -r library; do
      install -D "$library" "$2$library"
      licence "$library" "$2"
    done
}

# licence FILE ROOT: the licence of the package that has the file, if one has it.
licence() {
  local package
  # /lib is a link to /usr/lib, and packages name their files by either.
  package=$( (dpkg-query --search "$1" "/usr$1" || true) 2>/dev/null | sed -n '1s/:.*//p')
  [ -z "$package" ] || install -D -m 644 "/usr/share/doc/$package/copyright" "$2/usr/share/doc/$package/copyright"
}
