"""Machines to test with: network namespaces on one bridge, each with an address of its own."""
import os
import signal
import subprocess
from contextlib import contextmanager


def has_namespaces():
    return os.geteuid() == 0 and subprocess.run("ip netns add inktry && ip netns del inktry", shell=True,
                                                capture_output=True).returncode == 0


@contextmanager
def machines(folder, count, slow=()):
    """Network namespaces on one bridge, as machines: what mpirun is to be told, what to run it by, and
    a function that pulls a machine's cable. slow: what tc is told of each machine's link, such as netem rate 1gbit delay 1ms."""
    name = f"ink{os.getpid()}"
    made = []

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def add(space):
        ip("netns", "add", space)
        made.append(space)

    try:
        add(name)
        ip("-n", name, "link", "add", "br0", "type", "bridge")
        ip("-n", name, "link", "set", "br0", "up")
        for i in range(1, count + 1):
            add(f"{name}-{i}")
            ip("link", "add", "eth", "netns", f"{name}-{i}", "type", "veth", "peer", "name", f"p{i}",
               "netns", name)
            ip("-n", f"{name}-{i}", "addr", "add", f"10.77.0.{i}/24", "dev", "eth")
            ip("-n", f"{name}-{i}", "link", "set", "eth", "up")
            ip("-n", f"{name}-{i}", "link", "set", "lo", "up")
            ip("-n", name, "link", "set", f"p{i}", "master", "br0", "up")
            if slow:
                subprocess.run(["tc", "-n", f"{name}-{i}", "qdisc", "add", "dev", "eth", "root", *slow],
                               check=True)
        agent = os.path.join(folder, "agent")  # in place of ssh: agent ADDRESS COMMAND
        with open(agent, "w") as file:
            file.write("#!/bin/bash\nmachine=${1##*.}\nshift\n"
                       f'exec ip netns exec {name}-$machine unshare -u sh -c "hostname host$machine; $*"\n')
        os.chmod(agent, 0o755)
        options = ["--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "-H",
                   ",".join(f"10.77.0.{i}:1" for i in range(1, count + 1))]
        for layer in ("btl", "oob"):
            options += ["--mca", f"{layer}_tcp_if_include", "10.77.0.0/24"]
        before = ["ip", "netns", "exec", f"{name}-1", "unshare", "-u", "sh", "-c", 'hostname host1; exec "$@"', "-"]
        yield options, before, lambda i: ip("-n", name, "link", "set", f"p{i}", "down")
    finally:
        for space in made:
            left = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
            for pid in left.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], check=False)
