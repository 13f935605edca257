"""What the programs of this folder share: starting servers and clients, waiting, ending all of it, and comparing."""
import ctypes
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROLES = HERE / "roles"
PATIENCE = 60  # seconds that nothing takes
LONG = bool(os.environ.get("LEAT_PROGRAMS_LONG"))  # what is measured is repeated more often


class Failure(Exception):
    """What a program did wrong."""


def has(name):
    """Whether there is such a program, or file."""
    return os.path.exists(name) if name.startswith("/") else shutil.which(name) is not None


def built(name):
    """The path of a program of this folder's own. ctest says where it built them; by hand it is the latest there is."""
    root = HERE.parents[1]
    folder = os.environ.get("LEAT_PROGRAMS_BUILT", root / "build/release/tests/programs")
    found = [] if "LEAT_PROGRAMS_BUILT" in os.environ else root.glob(f"build/*/tests/programs/{name}")
    return max(map(str, found), key=os.path.getmtime, default=f"{folder}/{name}")


def digest(data):
    """A short name of bytes, or of a file's."""
    if isinstance(data, pathlib.Path):
        data = data.read_bytes()
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:16]}"


def pattern(size, seed=1):
    """Bytes without short repetitions, the same in every run."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def short(value):
    text = repr(value)
    return text if len(text) < 400 else f"{text[:200]} ... {text[-200:]}"


reserved = []  # sockets, until this process ends


def free_port():
    """A port that nobody has, that the kernel gives to no connection, and that nobody else who asks so gets.

    Those below belong to the tests in C++, which ask otherwise."""
    while True:
        port = random.randrange(30000, 32768)
        # That of UDP stands for it: no server minds, and no two can have it.
        keeper = socket.socket(type=socket.SOCK_DGRAM)
        try:
            keeper.bind(("", port))
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            keeper.close()
            continue
        reserved.append(keeper)
        return port


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
libc = ctypes.CDLL(None)


def adopt_orphans():
    """Makes what a program leaves behind a child of this process, however it left it."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_us():
    """In a child: it ends when this process is killed."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants(of=None):
    """All processes below that one, or this one."""
    children = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, left = [], [of or os.getpid()]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def end_descendants():
    """Kills and waits for all of them."""
    while True:
        for process in descendants():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def listens(port):
    """Whether a socket of this host listens there; does not connect, which a server would see."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return True
    return False


class Folder:
    """A scratch folder that everybody may use, because servers give up being root."""

    def __init__(self, keep):
        self.keep = keep

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="programs-"))
        self.path.chmod(0o777)
        return self.path

    def __exit__(self, *_):
        if self.keep:
            print(f"kept {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)


class Run:
    """One run of a program's server and clients. `results` must be the same in every run; `measured` only where run.both(),
    which other runs leave out; `speeds` need not."""

    def __init__(self, folder, server_runner, client_runner):
        self.folder = folder
        self.log = folder / f"log.{time.monotonic_ns()}"
        self.log.touch()
        self.log.chmod(0o666)
        self.server_runner = server_runner
        self.client_runner = client_runner
        self.results = {}
        self.measured = {}
        self.speeds = {}
        self.processes = []
        self.processor_time = 0.0  # of all of them, in seconds

    def both(self):
        """Whether speeds of this run are of interest: both ends are under the runner, or none."""
        return bool(self.server_runner) == bool(self.client_runner)

    def text(self, baseline=None):
        parts = [f"{len(self.results) + len(self.measured)} results"]
        if self.server_runner or self.client_runner:
            parts.append(f"{self.carried()} connections carried")
        for name, speed in self.speeds.items():
            ratio = ""
            if baseline is not None and baseline.speeds.get(name):
                ratio = f" ({speed / baseline.speeds[name]:.2f} of TCP)"
            parts.append(f"{name} {speed:.4g}{ratio}")
        ratio = f" ({self.processor_time / baseline.processor_time:.2f} of TCP)" if baseline is not None else ""
        parts.append(f"processor time {self.processor_time:.2f} s{ratio}")
        return ", ".join(parts)

    def carried(self):
        """How many connections leat says it carried; both ends say so."""
        return self.log.read_text(errors="replace").count("carried through shared memory") // 2

    # Programs

    def start(self, command, runner, before=(), **options):
        """Starts a program in a session of its own, whose output goes to files."""
        number = len(self.processes)
        out = self.folder / f"out.{number}"
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", out.open("wb"))
        environment = {**os.environ, "LEAT_LOG_LEVEL": "info", "LEAT_LOG_FILE": str(self.log)}
        process = subprocess.Popen(
            [*before, *runner, *map(str, command)], cwd=self.folder, start_new_session=True,
            env=environment, preexec_fn=die_with_us,
            stderr=(self.folder / f"err.{number}").open("wb"), **options)
        process.name = str(command[0])
        process.out = out
        process.err = self.folder / f"err.{number}"
        self.processes.append(process)
        return process

    def serve(self, command, port, **options):
        """Starts a server and waits until it listens."""
        server = self.start(command, self.server_runner, **options)
        deadline = time.monotonic() + 20
        while not listens(port):
            if server.poll() is not None:
                raise Failure(f"{server.name} ended with {server.returncode}: {self.errors_of(server)}")
            if time.monotonic() > deadline:
                raise Failure(f"{server.name} does not listen: {self.errors_of(server)}")
            time.sleep(0.01)
        return server

    def start_client(self, command, **options):
        return self.start(command, self.client_runner, **options)

    def finish(self, process, timeout=PATIENCE, codes=(0,)):
        """Waits for the end of a program and returns its output."""
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop(process, signal.SIGKILL)
            raise Failure(f"{process.name} took longer than {timeout} s: {self.errors_of(process)}") from None
        if code not in codes:
            raise Failure(f"{process.name} ended with {code}: {self.errors_of(process)}")
        return process.out.read_bytes()

    def client(self, command, timeout=PATIENCE, codes=(0,), **options):
        """Runs a client to its end and returns its output."""
        return self.finish(self.start_client(command, **options), timeout, codes)

    @staticmethod
    def errors_of(process):
        return short((process.err.read_bytes() + process.out.read_bytes())[-600:].decode(errors="replace"))

    @staticmethod
    def stop(process, how=signal.SIGTERM):
        """Ends a program and all of its session's group."""
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)

    def stop_all(self):
        """First as one asks them to, so that they write what they still have; then whatever is left."""
        for process in reversed(self.processes):
            self.stop(process)
        end_descendants()

    def check_statistics(self, process, live):
        """Fails unless leat-stat comes to show so many live connections of a process, with those that it has forked, as are
        carried."""
        if not self.server_runner and not self.client_runner:
            return
        tool = pathlib.Path((self.server_runner or self.client_runner)[0]).with_name("leat-stat")
        if not tool.exists():
            return
        wanted = live if self.server_runner and self.client_runner else 0
        deadline = time.monotonic() + 20
        while True:
            shown = []
            for one in (process.pid, *descendants(process.pid)):
                output = subprocess.run([tool, "--json", str(one)], capture_output=True, timeout=20, check=False).stdout
                shown += json.loads(output or b"[]")
            if sum(one["sent_bytes"] > 0 and one["received_bytes"] > 0 for one in shown) == wanted:
                return
            if time.monotonic() > deadline:
                raise Failure(f"{process.name}: leat-stat shows {shown}")
            time.sleep(0.02)

    def check_live(self, server, command, question, answer, **options):
        """Fails unless leat-stat shows, of a client that stays, its connection, if it is carried."""
        client = self.start_client(command, stdin=subprocess.PIPE, **options)
        client.stdin.write(question)
        client.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while answer not in client.out.read_bytes():
            if client.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{client.name}: no {answer!r}: {self.errors_of(client)}")
            time.sleep(0.02)
        self.check_statistics(server, live=1)
        client.stdin.close()
        self.stop(client)

    # What must be the same

    def file(self, name, content):
        """Writes a file and returns its path."""
        path = self.folder / name
        path.write_bytes(content)
        path.chmod(0o666)
        return path

    def result(self, name, value, measured=False):
        (self.measured if measured else self.results)[name] = value

    def speed(self, name, value):
        """Higher is better."""
        self.speeds[name] = float(value)


def processor_time_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(module, folder, server_runner, client_runner):
    """One run of a program, all of whose processes are gone after it."""
    one = Run(folder, server_runner, client_runner)
    before = processor_time_of_children()
    try:
        module.run(one)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failure(str(error)) from error
    finally:
        one.stop_all()
        one.processor_time = processor_time_of_children() - before
    return one
