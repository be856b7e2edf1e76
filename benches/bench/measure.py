"""Resources of a program and all its children: CPU time, resident memory, descriptors.

CPU time is read from the cgroup of the program (`cpu.stat`, in microseconds; present in every cgroup of version 2, even
without controllers). It includes all threads and children, running, ended or reaped. The alternatives are worse: ticks
of /proc/PID/stat are 10 ms, up to a tenth of the measured values; /proc/PID/schedstat covers only one running thread.
If no cgroup can be created, CPU time is the sum of the process CPU clocks of running processes (nanoseconds, including
ended threads) and the ticks of reaped children.
"""

import ctypes
import os
import signal
import time

from bench import netns

TICK = os.sysconf("SC_CLK_TCK")


def cgroup_root():
    """Returns the mount point of cgroup version 2, or None."""
    with open("/proc/self/mounts") as f:
        mounts = [line.split() for line in f]
    return next((m[1] for m in mounts if m[2] == "cgroup2"), None)


def sweep():
    """Removes cgroups of dead runs, and kills the processes in them."""
    root = cgroup_root()
    for name in os.listdir(root) if root else ():
        if netns.is_leftover(name):
            Tree(0, os.path.join(root, name)).end()


def new_cgroup(label):
    """Creates an empty cgroup and returns its path, or None without permission."""
    root = cgroup_root()
    if root is None:
        return None
    path = os.path.join(root, f"{netns.PREFIX}{os.getpid()}-{label}")
    try:
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "cpu.stat")) as f:
            f.read()
        return path
    except OSError:
        return None


def read(path):
    with open(path) as f:
        return f.read()


def stat_fields(pid):
    """Returns the fields of /proc/PID/stat from the third on (the second, the name, may contain spaces)."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def descendants(pid):
    """Returns `pid`, its descendants, and all processes of its session."""
    parents, sessions = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = stat_fields(entry)
        except OSError:
            continue
        parents[int(entry)], sessions[int(entry)] = int(fields[1]), int(fields[3])
    found = {p for p, session in sessions.items() if session == pid} | ({pid} & set(parents))
    while True:
        more = {p for p, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found)
        found |= more


def process_clock(pid):
    """Returns the CPU seconds of all threads of a process, including ended threads (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def process_cpu(pid):
    """Returns the CPU seconds of one process: those of its threads by its CPU clock, those of reaped children by
    ticks."""
    fields = stat_fields(pid)
    children = (int(fields[13]) + int(fields[14])) / TICK
    try:
        return process_clock(pid) + children
    except OSError:
        return (int(fields[11]) + int(fields[12])) / TICK + children


def resident(pid):
    """Returns the resident bytes of a process. Shared pages are divided among the processes that share them (Pss), so
    that the sum over forked children is correct."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def machine_cpu():
    """Returns the CPU seconds of the whole machine since boot, with the resolution of a tick: user, system and
    interrupt time."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, read("/proc/stat").split("\n", 1)[0].split()[1:8])
    return (user + nice + system + irq + softirq) / TICK


class Tree:
    """A started program with all its children."""

    def __init__(self, pid, cgroup=None):
        self.pid, self.cgroup = pid, cgroup

    def pids(self):
        if self.cgroup is None:
            return descendants(self.pid)
        return sorted({int(p) for p in read(os.path.join(self.cgroup, "cgroup.procs")).split()})

    def _sum(self, each):
        total = 0
        for pid in self.pids():
            try:
                total += each(pid)
            except OSError:  # the process has ended
                pass
        return total

    def cpu(self):
        """Returns the CPU seconds (user and system) of the whole tree since its start."""
        if self.cgroup is None:
            return self._sum(process_cpu)
        for line in read(os.path.join(self.cgroup, "cpu.stat")).splitlines():
            if line.startswith("usage_usec"):
                return int(line.split()[1]) / 1e6
        raise RuntimeError(f"no usage_usec in {self.cgroup}/cpu.stat")

    def resident(self):
        return self._sum(resident)

    def descriptors(self):
        """Returns (open descriptors, descriptors of pipes among them)."""
        every = pipes = 0
        for pid in self.pids():
            folder = f"/proc/{pid}/fd"
            try:
                fds = os.listdir(folder)
            except OSError:
                continue
            every += len(fds)
            pipes += sum(is_pipe(os.path.join(folder, fd)) for fd in fds)
        return every, pipes

    def settle(self, processes, seconds=0.5):
        """Waits until at most `processes` processes run, at most `seconds`: children that serve one connection end
        after it."""
        deadline = time.monotonic() + seconds
        time.sleep(0.03)
        while len(self.pids()) > processes and time.monotonic() < deadline:
            time.sleep(0.02)

    def end(self):
        """Kills all processes of the tree and removes the cgroup."""
        deadline = time.monotonic() + 10
        killed = set()
        while time.monotonic() < deadline:
            pids = self._living()
            if not pids:
                break
            killed.update(pids)
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.01)
        for pid in killed - {self.pid}:  # its Popen reaps the direct child
            reap(pid)
        self._remove_cgroup(deadline)

    def _living(self):
        if self.cgroup is not None:
            return self.pids()
        return [p for p in self.pids() if not is_zombie(p)]

    def _remove_cgroup(self, deadline):
        while self.cgroup is not None and os.path.isdir(self.cgroup):
            try:
                os.rmdir(self.cgroup)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


class Forest(Tree):
    """Several started programs, measured as one."""

    def __init__(self, trees):
        super().__init__(0)
        self.trees = trees

    def pids(self):
        return sorted(pid for tree in self.trees for pid in tree.pids())

    def cpu(self):
        return sum(tree.cpu() for tree in self.trees)

    def end(self):
        for tree in self.trees:
            tree.end()


def adopt_orphans():
    """Makes this process the reaper of orphaned descendants, because PID 1 of a container may not reap them."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(pid):
    deadline = time.monotonic() + 1
    try:
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
    except ChildProcessError:
        pass


def is_pipe(path):
    try:
        return os.readlink(path).startswith("pipe:")
    except OSError:
        return False


def is_zombie(pid):
    try:
        return stat_fields(pid)[0] == "Z"
    except OSError:
        return True
