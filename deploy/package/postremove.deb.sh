#!/bin/sh
set -e

if [ "$1" = remove ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
    fi
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper mask rebate.socket rebate.service >/dev/null || true
    fi
fi
if [ "$1" = purge ]; then
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper purge rebate.socket rebate.service >/dev/null || true
        deb-systemd-helper unmask rebate.socket rebate.service >/dev/null || true
    fi
    # The saved items. The user stays, as files of it may be elsewhere.
    rm -rf /var/lib/rebate
fi
