#!/bin/sh
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now rebate.socket rebate.service || true
fi
