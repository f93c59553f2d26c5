#!/usr/bin/env python3
"""Runs the shell blocks of documents, so that what a reader copies works.

Usage: scripts/run_blocks.py PROGRAM [PAGE...]   PROGRAM is the `rebate` to run; without pages, the tested ones

All blocks of a page run one after the other in one bash, which ends at the first command that fails. It is that of an
ordinary user in a network of its own, where the addresses and the host names of the pages exist, and may write to
copies of /etc/rebate and /run. Nothing that it does remains. Needs root. A comment before a block says how it is
tested; readers do not see it:

    <!-- test: setup               the lines of the comment run first; what they start ends with the page
    COMMANDS
    -->
    <!-- test: file NAME -->       the block, of whatever language, is written to this file
    <!-- test: serves -->          `rebate serve` and `rebate memcached` in this block serve beside the page, until the
                                   next such block
    <!-- test: replace WORD, COMMAND --> what COMMAND prints stands for WORD in the block
    <!-- test: not run, REASON --> the block is not run

What the tool refuses: a page without blocks, a comment that it does not know, and a comment without a block.
Exit codes: 0 all blocks ran, 1 one failed, 2 bad usage, 3 this machine allows no network namespace.
"""

import concurrent.futures
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The pages with which a reader starts, and the guides.
PAGES = ["docs/start.md", *(f"docs/operating/{name}.md" for name in (
    "access", "configuration", "dictionaries", "estimate", "install", "lane", "metrics", "migration", "model", "near",
    "requests", "ring", "sealed", "services", "thrift", "tls", "what-do-i-save"))]
# What stands for a reader's machines. The host names are those of the pages.
ADDRESSES = [f"10.0.0.{number}" for number in range(1, 6)]
HOSTS = ["cache1", "cache2", "cache3", "cache-1", "cache-2", "store-1"]
PAGE_S = 300
PAGES_AT_ONCE = 4
# An ordinary user; it needs no name.
USER = 1000
COMMENT = re.compile(r"<!-- test: (?P<words>[^\n]*?)(?: -->|\n(?P<lines>.*?)\n?-->)", re.DOTALL)
SERVER = re.compile("rebate (serve|memcached) ")
FENCE = re.compile(r"(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)\n *```", re.DOTALL)

# The beginning of each page's script. `serve` waits until a server says where it listens, which takes long where the
# machine has much other work.
PRELUDE = """\
set -euo pipefail
servers=()
end_servers() {
  [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
  [ ${#servers[@]} -eq 0 ] || wait "${servers[@]}" 2>/dev/null || true
  servers=()
}
serve() {
  local log turn
  log=$(mktemp)
  bash -c "exec $1" >"$log" 2>&1 &
  servers+=($!)
  for turn in $(seq 600); do
    kill -0 $! 2>/dev/null || { cat "$log" >&2; echo "the server has ended: $1" >&2; exit 1; }
    ! grep -Eq '^(listening|grpc) on ' "$log" || return 0
    sleep 0.1
  done
  echo "the server does not serve: $1" >&2; cat "$log" >&2; exit 1
}
# For the setup of a page: memcached at each ADDRESS:PORT, a few values in one, and files as values.
memcached_at() {
  local address
  for address in "$@"; do
    memcached -d -l "${address%:*}" -p "${address##*:}"
    until (: >"/dev/tcp/${address%:*}/${address##*:}") 2>/dev/null; do sleep 0.1; done
  done
}
load() { rebate load "$1" --rate 5000 --duration 1s --value-size 200 --payload json >/dev/null; }
values() {
  local number
  mkdir -p values
  for number in $(seq 600); do
    printf '{"id": %d, "name": "user %d", "mail": "user%d@example.org"}' "$number" "$number" "$number" >"values/$number"
  done
}
sudo() { "$@"; }
"""


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if sys.argv[1:] else 2
    program = pathlib.Path(sys.argv[1]).resolve()
    if not program.is_file():
        print(f"run_blocks: {sys.argv[1]} is not a program", file=sys.stderr)
        return 2
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode != 0:
        print("run_blocks: this machine allows no network namespace (unshare --net --mount)", file=sys.stderr)
        return 3
    pages = []
    for page in sys.argv[2:] or PAGES:
        try:
            pages.append((page, *script_of((ROOT / page).read_text(), page)))
        except (OSError, ValueError) as error:
            print(f"run_blocks: {page}: {error}", file=sys.stderr)
            return 2
    # They wait most of the time, and have machines of their own.
    with concurrent.futures.ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
        return int(not all(list(pool.map(lambda page: reported(*page, program), pages))))


def reported(page, script, run, skipped, program):
    """Runs a page, says how it went, and returns whether all went well."""
    code, output = run_page(script, program)
    text = f"{'ok    ' if code == 0 else 'FAILED'} {page}: {run} blocks run, {skipped} not run"
    print(text if code == 0 else f"{text}\n{textwrap.indent(output[-4000:], '    ')}", flush=True)
    return code == 0


def script_of(text, page):
    """Returns the script of a page, and how many blocks it runs and leaves out."""
    comments = list(COMMENT.finditer(text))
    if text.count("<!-- test:") != len(comments):
        raise ValueError("a comment `<!-- test:` has no end")
    parts, run, skipped, position = [PRELUDE], 0, 0, 0
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        before = [comment for comment in comments if position <= comment.start() < fence.start()]
        position = fence.end()
        block = textwrap.dedent(fence["indent"] + fence["text"].lstrip(" ") if not fence["indent"] else fence["text"])
        how = [comment["words"] for comment in before]
        parts += [comment["lines"] for comment in before if comment["words"] == "setup"]
        others = [words for words in how if words != "setup"]
        if len(others) > 1:
            raise ValueError(f"line {line}: several comments say how this block is tested: {others}")
        words = others[0] if others else ""
        if fence["language"] != "sh" and not words:
            continue
        parts.append(f"echo {shlex.quote(f'--- {page}:{line}')} >&2")
        if words.startswith("not run, "):
            skipped += 1
        elif words.startswith("file "):
            name = shlex.quote(words.removeprefix("file "))
            parts.append(f"cat > {name} <<'END OF FILE'\n{block}\nEND OF FILE")
            run += 1
        elif words == "serves":
            parts.append("end_servers")
            parts += [f"serve {shlex.quote(command)}" if SERVER.match(command) else command
                      for command in commands_of(block)]
            run += 1
        elif words.startswith("replace ") and ", " in words:
            word, command = words.removeprefix("replace ").split(", ", 1)
            parts += [f"word=$({command})", block.replace(word, "$word")]
            run += 1
        elif not words:
            parts.append(block)
            run += 1
        else:
            raise ValueError(f"line {line}: `test: {words}` is not known")
    if any(comment.start() >= position for comment in comments):
        raise ValueError("the last comment `<!-- test:` has no block behind it")
    if run + skipped == 0:
        raise ValueError("the page has no shell block")
    return "\n".join(parts + ["end_servers", ""]), run, skipped


def commands_of(block):
    """Returns the commands of a block, without comments. A line that ends with \\ goes on in the next."""
    lines = block.replace("\\\n", " ").split("\n")
    without_comments = (re.sub(r"(^|\s)#.*", "", line).strip().removesuffix("&").strip() for line in lines)
    return [line for line in without_comments if line]


def run_page(script, program):
    """Runs the script of a page. Returns its exit code and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("bin", "page"):
            (folder / name).mkdir()
        shutil.copy(program, folder / "bin/rebate")
        (folder / "page.sh").write_text(script)
        (folder / "begin.sh").write_text(begin_script())
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-euc",
                   f"cd {folder} && . ./begin.sh"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  timeout=PAGE_S, text=True, errors="replace")
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            return 1, f"{(error.stdout or b'').decode(errors='replace')}\nnot done after {PAGE_S} s"


def begin_script():
    """Returns the commands that make the machine of a page, become an ordinary user on it, and run the page."""
    hosts = [*zip(ADDRESSES * 2, HOSTS), ("127.0.0.1", "localhost"), ("::1", "localhost")]
    lines = "".join(f"{address} {name}\\n" for address, name in hosts)
    return "\n".join([
        "ip link set lo up",
        *(f"ip addr add {address}/32 dev lo" for address in ADDRESSES),
        # Folders of temporary files may be on a file system that cannot be laid over another.
        "mkdir over && mount -t tmpfs none over && mkdir over/etc over/work over/run",
        "mount -t overlay none -o lowerdir=/etc,upperdir=over/etc,workdir=over/work /etc",
        "mount --bind over/run /run",
        f"printf '{lines}' >/etc/hosts",
        "mkdir -p /etc/rebate /run/rebate",
        f"chown {USER} . page /etc/rebate /run/rebate",
        f"PATH=$PWD/bin:$PATH script=$PWD/page.sh ROOT={shlex.quote(str(ROOT))}",
        "export PATH ROOT HOME=$PWD/page && cd page",
        f"exec setpriv --reuid={USER} --regid={USER} --clear-groups bash \"$script\"", ""])


if __name__ == "__main__":
    sys.exit(main())
