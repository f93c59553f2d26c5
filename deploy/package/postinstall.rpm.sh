#!/bin/sh
# As Fedora's macros do: the user, and the units as the system's presets say. An upgrade restarts the service; the
# socket keeps the clients that come meanwhile.
if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers rebate.conf || true
elif ! getent passwd rebate >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/rebate --no-create-home \
        --shell /usr/sbin/nologin rebate || true
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ "$1" -eq 1 ]; then
        systemctl preset rebate.socket rebate.service || true
    else
        systemctl try-restart rebate.service || true
    fi
fi
