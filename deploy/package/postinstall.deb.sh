#!/bin/sh
set -e

if [ "$1" = configure ]; then
    if ! getent passwd rebate >/dev/null; then
        adduser --system --group --quiet --home /var/lib/rebate --no-create-home \
            --gecos "Rebate, a compressed cache" rebate
    fi
    # The services are started by themselves, unless an administrator has disabled them or forbids it by policy.
    for unit in rebate.socket rebate.service; do
        deb-systemd-helper unmask "$unit" >/dev/null || true
        if deb-systemd-helper --quiet was-enabled "$unit"; then
            deb-systemd-helper enable "$unit" >/dev/null || true
        else
            deb-systemd-helper update-state "$unit" >/dev/null || true
        fi
    done
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        deb-systemd-invoke start rebate.socket >/dev/null || true
        # After an upgrade, the socket keeps the clients that come meanwhile.
        if [ -n "$2" ]; then
            deb-systemd-invoke restart rebate.service >/dev/null || true
        else
            deb-systemd-invoke start rebate.service >/dev/null || true
        fi
    fi
fi
