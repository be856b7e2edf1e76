#!/usr/bin/env python3
"""Runs ekiden; `ekiden run` returns when the relay is ready and leaves it running, so that a page's script continues."""

import os
import subprocess
import sys

from notify import PATH, Listener

binary, arguments = os.environ["EKIDEN_BINARY"], sys.argv[1:]
if arguments[:1] != ["run"] or "--help" in arguments:
    os.execv(binary, ["ekiden", *arguments])
manager = Listener()
log, errors = open("/run/ekiden.log", "ab"), open(f"/run/errors.{os.getpid()}", "w+b")
relay = subprocess.Popen(
    ["ekiden", *arguments], executable=binary, env={**os.environ, "NOTIFY_SOCKET": PATH}, stdin=subprocess.DEVNULL,
    stdout=log, stderr=errors, start_new_session=True)
if not manager.wait_ready(lambda: relay.poll() is None):
    errors.seek(0)
    sys.exit(f"ekiden run ended with {relay.returncode}: {errors.read().decode()}")
