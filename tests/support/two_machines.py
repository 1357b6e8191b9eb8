"""Two network namespaces joined by a pair of virtual interfaces, as two machines: torchrun in each.

    python tests/support/two_machines.py [OPTION OF gnnbench train ...]

The namespaces belong to a user namespace of their own, which takes no privileges where the system allows it,
and are gone with the processes in them. Prints what the first machine prints, and to standard error how many bytes
came through its interface. Where namespaces are not allowed it says so, and exits with 77.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = 77
ALONE = "GNNBENCH_TEST_NAMESPACE"  # set within the namespace of the first machine
NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
PORT = 29400


def obstacle() -> str:
    """Why there can be no such namespaces here; empty where there can."""
    if missing := [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]:
        return f"{missing[0]} is not installed"
    tried = [*NAMESPACE, "ip", "link", "add", "here", "type", "veth", "peer", "name", "there"]
    done = subprocess.run(tried, capture_output=True, text=True)
    return f"network namespaces are not allowed: {done.stderr.strip()}" if done.returncode else ""


def machine(number: int, options: list[str]) -> tuple[list[str], dict[str, str]]:
    """The command of a machine and its environment."""
    place = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(number)]
    meet = ["--master-addr", address(0), "--master-port", str(PORT)]
    command = [sys.executable, "-m", "torch.distributed.run", *place, *meet, "-m", "gnnbench", "train", *options]
    environment = {"GLOO_SOCKET_IFNAME": interface(number), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return command, {**os.environ, **environment}


def address(number: int) -> str:
    return f"10.77.0.{number + 1}"


def interface(number: int) -> str:
    return f"machine{number}"


def ip(*arguments: str, of: int | None = None) -> str:
    """Run `ip` here, or in the namespace of a process."""
    enter = [] if of is None else ["nsenter", "--net", "--target", str(of)]
    return subprocess.run([*enter, "ip", *arguments], check=True, capture_output=True, text=True).stdout


def connect(second: int) -> None:
    """Give an interface to this namespace, and its peer to that of a process."""
    ip("link", "add", interface(0), "type", "veth", "peer", "name", interface(1))
    ip("link", "set", interface(1), "netns", str(second))
    for number, pid in enumerate((None, second)):
        ip("address", "add", f"{address(number)}/24", "dev", interface(number), of=pid)
        for name in ("lo", interface(number)):
            ip("link", "set", name, "up", of=pid)


def train(options: list[str]) -> int:
    """Both machines, of which this namespace is the first; the exit code of the one that fails."""
    command, environment = machine(1, options)
    waits = ["unshare", "--net", "sh", "-c", 'read -r _ && exec "$@"', "sh", *command]  # until it has an interface
    second = subprocess.Popen(waits, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{second.pid}/ns/net") == own:
            time.sleep(0.01)
        with open(f"/proc/{second.pid}/ns/net"):  # both interfaces go with this namespace
            connect(second.pid)
            assert second.stdin
            second.stdin.write(b"\n")
            second.stdin.close()
            command, environment = machine(0, options)
            first = subprocess.run(command, env=environment).returncode
            (link,) = json.loads(ip("-json", "-statistics", "link", "show", interface(0)))
        code = first or second.wait(timeout=60)
    finally:
        second.terminate()  # which torchrun passes on to its worker
        second.wait()
    print(f"{link['stats64']['rx']['bytes']} bytes came from the other machine", file=sys.stderr)
    return code


def main() -> int:
    if os.environ.get(ALONE):
        return train(sys.argv[1:])
    if why := obstacle():
        print(why, file=sys.stderr)
        return SKIPPED
    os.environ[ALONE] = "1"
    os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, __file__, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
