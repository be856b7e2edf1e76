"""Booted containers of Debian with their own files, processes, services and network, for packaging/try-*.

A container has a root from debootstrap, on a file system in memory. It does not change the host and leaves nothing behind,
even after a kill. Packages come from the mirror of this machine. Needs root."""

import os
import pathlib
import subprocess
import sys
import time

SUITE = "bookworm"
PRIVATE = "EKIDEN_TRY_PRIVATE"
# Mount points of control groups in the legacy, hybrid and unified layout.
CGROUPS = [pathlib.Path("/sys/fs/cgroup") / name for name in ("systemd", "unified", "")]
# apt as in interactive use, but without questions.
APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet=2", "--yes"]
FOLDER = pathlib.Path(__file__).resolve().parent


def run(*command, **options):
    """Returns the output of a command; exits if it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def mirror():
    """Returns the Debian mirror of this machine."""
    lines = run("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages").splitlines()
    found = [line.split()[1] for line in lines if line.startswith("Debian ")]
    return found[0] if found else sys.exit("apt knows no mirror of Debian on this machine")


def enter_groups(name):
    """Moves this process into control groups of this name."""
    for group in [place / name for place in CGROUPS if (place / "cgroup.procs").exists()]:
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _grouped():
    """Moves this process into new control groups, and returns their name. A process outside of them removes them after this
    process has ended."""
    name = f"ekiden-try-{os.getpid()}"
    gone, alive = os.pipe()
    remove = "cat; for again in $(seq 100); do find $0 -depth -type d -exec rmdir {} + && exit; sleep 0.1; done"
    ours = " ".join(str(place / name) for place in CGROUPS if (place / "cgroup.procs").exists())
    subprocess.Popen(["sh", "-c", remove.replace("$0", ours)], stdin=gone, stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(gone)
    os.set_inheritable(alive, True)
    enter_groups(name)
    return name


def private():
    """Starts the calling script again in namespaces of its own, with empty file systems at /run and /mnt. The namespaces end
    with their last process, and no process outlives the init."""
    if PRIVATE not in os.environ:
        name = _grouped()
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], os.environ | {PRIVATE: name})
    for place in ("/run", "/mnt"):
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place)


def debootstrapped(root):
    print(f"a clean root of {SUITE} ...", flush=True)
    run("debootstrap", SUITE, root, mirror(), stderr=subprocess.STDOUT)


def newest(name, below="debian"):
    """The newest Debian package of a name in a folder of the build; none if there is none."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", FOLDER.parent / "target"))
    packages = sorted((target / below).glob(f"{name}_*.deb"), key=lambda file: file.stat().st_mtime)
    return packages[-1].resolve() if packages else None


def newer(package, path):
    """Writes a Debian package like `package` with a higher version."""
    folder = pathlib.Path("/run/ekiden-newer")
    run("dpkg-deb", "--raw-extract", package, folder)
    control = folder / "DEBIAN/control"
    lines = [line + "+newer" if line.startswith("Version:") else line for line in control.read_text().splitlines()]
    control.write_text("\n".join(lines) + "\n")
    run("dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", folder, path)


class Machine:
    """A booted Debian with the files in `root`. Only apt uses the host's network."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        group = f"{os.environ[PRIVATE]}/{self.root.name}"
        self.container = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network",
             "--resolv-conf=off", "--console=pipe", f"--directory={self.root}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=lambda: enter_groups(group))
        self.init = self.first()
        deadline = time.monotonic() + 60
        while self.run("systemctl", "is-system-running", "--wait", check=False).strip() not in ("running", "degraded"):
            assert time.monotonic() < deadline, "it does not boot"
            time.sleep(0.2)

    def first(self):
        """Returns the pid of its init once it runs."""
        children = pathlib.Path(f"/proc/{self.container.pid}/task/{self.container.pid}/children")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.container.poll() is None:
            for child in children.read_text().split():
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return child
            time.sleep(0.05)
        sys.exit("systemd-nspawn does not boot it")

    def entered(self, *command, network=True):
        """Returns a command that runs `command` in the machine, optionally with the host's network."""
        enter = ["nsenter", f"--target={self.init}", "--mount", "--uts", "--ipc", "--pid", *(["--net"] if network else [])]
        return [*enter, "env", "--chdir=/", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", *command]

    def run(self, *command, network=True, check=True, **options):
        """Runs a command in the machine, and returns its output."""
        command = self.entered(*command, network=network)
        if check:
            return run(*command, **options)
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def apt(self, *words):
        return self.run(*APT, *words, network=False)

    def beside(self, *command):
        """Runs a command of the host in the machine's network."""
        return ["nsenter", f"--target={self.init}", "--net", *command]

    def state(self):
        return self.run("systemctl", "is-active", "ekiden", check=False).strip()

    def property(self, name):
        return self.run("systemctl", "show", "--value", f"--property={name}", "ekiden").strip()
