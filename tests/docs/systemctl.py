#!/usr/bin/env python3
"""systemctl for machines without systemd: runs the service ekiden as its unit and the drop-ins of the unit specify.

Unknown verbs, options, units and settings are errors. The service manager ends with the command, so a relay that ends
is not restarted, and no watchdog runs. The settings in NOT_APPLIED are accepted and not applied.
"""

import glob
import json
import os
import pathlib
import pwd
import select
import shutil
import signal
import subprocess
import sys

from notify import PATH, Listener

UNIT = "/etc/systemd/system/ekiden.service"
WANTED = pathlib.Path("/etc/systemd/system/multi-user.target.wants/ekiden.service")
LOADED = pathlib.Path("/run/systemctl.loaded")  # the settings at the last daemon-reload
MAIN_PID = pathlib.Path("/run/systemctl.main-pid")

# Settings of several values: an assignment appends, and an empty one clears the list (systemd.exec(5)).
LISTS = {"ExecStartPre", "ExecStart", "ExecReload", "ExecStopPost", "Environment", "AmbientCapabilities",
         "CapabilityBoundingSet"}
SCALARS = {"User", "RuntimeDirectory", "StateDirectory", "UMask", "NoNewPrivileges", "TimeoutStopSec"}
NOT_APPLIED = {
    "Type", "NotifyAccess", "Restart", "RestartSec", "RestartPreventExitStatus", "WatchdogSec", "LimitNOFILE", "DynamicUser",
    "ProtectSystem", "ProtectHome", "PrivateTmp", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectControlGroups",
    "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies",
    "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "MemoryDenyWriteExecute",
    "SystemCallArchitectures", "SystemCallFilter", "SystemCallErrorNumber"}


def daemon_reload():
    """Reads the section [Service] of the unit and of its drop-ins."""
    settings = {name: [] for name in LISTS}
    for file in [UNIT, *sorted(glob.glob(UNIT + ".d/*.conf"))]:
        section = None
        for line in pathlib.Path(file).read_text().splitlines():
            if not line or line[0] in "#;":
                continue
            if line[0] == "[":
                section = line
            elif section == "[Service]":
                assign(settings, file, *line.split("=", 1))
    LOADED.write_text(json.dumps(settings))


def assign(settings, file, key, value):
    if key in LISTS:
        settings[key] = settings[key] + [value] if value else []
    elif key in SCALARS:
        settings[key] = value
    elif key not in NOT_APPLIED:
        sys.exit(f"{file}: the setting {key} is not known here")


def main_process():
    """Returns a descriptor of the relay's process (pidfd_open(2)), or None if the relay does not run."""
    try:
        return os.pidfd_open(int(MAIN_PID.read_text()))
    except (FileNotFoundError, ProcessLookupError):
        return None


def has_ended(process, timeout=0.0):
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def is_running():
    process = main_process()
    return process is not None and not has_ended(process)


def unprivileged(settings, words):
    """Returns the command that runs these words as the user of the service, with only the capabilities of the service."""
    user = settings["User"]
    bounding, ambient = capabilities(settings["CapabilityBoundingSet"]), capabilities(settings["AmbientCapabilities"])
    options = [f"--reuid={user}", f"--regid={user}", "--init-groups", f"--bounding-set={bounding}", f"--inh-caps={ambient}",
               f"--ambient-caps={ambient}"]
    if settings.get("NoNewPrivileges") == "yes":
        options.append("--no-new-privs")
    return ["setpriv", *options, "--", *words]


def capabilities(assignments):
    """Returns the capabilities of these assignments in the syntax of setpriv(1)."""
    names = " ".join(assignments).split()
    return ",".join(["-all", *("+" + name.removeprefix("CAP_").lower() for name in names)])


def environment(settings):
    """Returns the environment of the service: systemd passes on no variables of the caller."""
    user = pwd.getpwnam(settings["User"])
    own = dict(assignment.split("=", 1) for assignment in settings["Environment"])
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "USER": user.pw_name,
            "LOGNAME": user.pw_name, "HOME": user.pw_dir, "NOTIFY_SOCKET": PATH, **own}


def spawn(settings, line):
    """Starts the command of an Exec line. Returns the process, and whether it may fail (prefix `-`); `+` runs it as root."""
    words = line.lstrip("-+").split()
    prefixes = line[:len(line) - len(line.lstrip("-+"))]
    if not words[0].startswith("/"):
        sys.exit(f"{line}: this prefix is not known here")
    variables = environment(settings)
    if MAIN_PID.exists():
        variables["MAINPID"] = MAIN_PID.read_text()
    words = [variables[word[1:]] if word.startswith("$") else word for word in words]
    words = words if "+" in prefixes else unprivileged(settings, words)
    log, errors = open("/run/ekiden.log", "ab"), open("/run/ekiden.errors", "ab")
    process = subprocess.Popen(
        words, env=variables, umask=int(settings["UMask"], 8), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=errors,
        start_new_session=True)
    return process, "-" in prefixes


def run(settings, key):
    for line in settings[key]:
        process, may_fail = spawn(settings, line)
        if process.wait() != 0 and not may_fail:
            fail(f"{key}={line} ended with {process.returncode}")


def fail(message):
    sys.exit(f"{message}\n{pathlib.Path('/run/ekiden.errors').read_text()}")


def start():
    if is_running():
        return
    settings = json.loads(LOADED.read_text())
    user = pwd.getpwnam(settings["User"])
    for place, name in [("/run", settings["RuntimeDirectory"]), ("/var/lib", settings["StateDirectory"])]:
        os.makedirs(f"{place}/{name}", 0o755, exist_ok=True)
        os.chown(f"{place}/{name}", user.pw_uid, user.pw_gid)
    run(settings, "ExecStartPre")
    manager = Listener()
    relay, _ = spawn(settings, settings["ExecStart"][0])
    if not manager.wait_ready(lambda: relay.poll() is None):
        clean_up(settings)
        fail(f"the relay ended with {relay.returncode} before it was ready")
    MAIN_PID.write_text(str(relay.pid))


def stop():
    process, settings = main_process(), json.loads(LOADED.read_text())
    if process is None:
        return
    signal.pidfd_send_signal(process, signal.SIGTERM)
    if not has_ended(process, float(settings["TimeoutStopSec"].removesuffix("s"))):
        signal.pidfd_send_signal(process, signal.SIGKILL)
        fail(f"the relay did not end within {settings['TimeoutStopSec']}")
    MAIN_PID.unlink()
    clean_up(settings)


def clean_up(settings):
    run(settings, "ExecStopPost")
    shutil.rmtree(f"/run/{settings['RuntimeDirectory']}")


def restart():
    stop()
    start()


def reload():
    if not is_running():
        sys.exit("ekiden.service is not active, cannot reload")
    manager = Listener()
    run(json.loads(LOADED.read_text()), "ExecReload")
    if not manager.wait_ready(is_running):
        fail("the relay ended in the reload")


def enable():
    WANTED.parent.mkdir(exist_ok=True)
    if not WANTED.is_symlink():
        WANTED.symlink_to(UNIT)
    daemon_reload()


def disable():
    WANTED.unlink(missing_ok=True)
    daemon_reload()


def is_active():
    running = is_running()
    print("active" if running else "inactive")
    sys.exit(0 if running else 3)


def main(arguments):
    on_unit = {
        "enable": [enable], "enable --now": [enable, start], "disable": [disable], "disable --now": [disable, stop],
        "start": [start], "stop": [stop], "restart": [restart], "reload": [reload], "is-active": [is_active]}
    if arguments == ["daemon-reload"]:
        return daemon_reload()
    *verb, unit = arguments or [""]
    if " ".join(verb) not in on_unit or unit not in ("ekiden", "ekiden.service"):
        sys.exit(f"systemctl {' '.join(arguments)}: not known here")
    for action in on_unit[" ".join(verb)]:
        action()


main(sys.argv[1:])
