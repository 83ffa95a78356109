"""Programs that write pieces of a third of their limit and put each where a walk through their files does not find it. Each piece is
hidden before the next is begun, so that there is never much to be seen."""

from __future__ import annotations

_WRITES = """
import array, ctypes, os, signal, socket, struct, threading, time
b = bytes(1 << 20)
kernel = ctypes.CDLL(None, use_errno=True)
kernel.mmap.restype = ctypes.c_void_p
kernel.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
kept = []
def pieces(hide, name="/big"):
    for n in range(14):
        with open(name, "wb+", 0) as f:
            for i in range(100): f.write(b)
            hide(f)
        os.unlink(name)
    time.sleep(1000)
def mapped(f):  # the C library's, which keeps no open file for it
    assert kernel.mmap(None, 4096, 1, 1, f.fileno(), 0) not in (None, 2**64 - 1)
def sent(sock, f, data=b"y"):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [f.fileno()]))])
def thread(work):
    ready = threading.Event()
    def run():
        work(); ready.set(); time.sleep(1000)
    threading.Thread(target=run, daemon=True).start()
    ready.wait()
def end_of_this_thread(): kernel.syscall(60, 0)
"""
_HUGE = """
import mmap
zeros = memoryview(mmap.mmap(-1, 0x7ffff000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ))
WRITE
for n in range(8): threading.Thread(target=write, args=(n,)).start()
"""
_KEPT = """
def write(n):
    f = os.open(f"/big{n}", os.O_CREAT | os.O_WRONLY)
    while True: os.write(f, zeros)
"""
# Maps a page without a file, goes on there, and unmaps the program: nothing but /proc/.../exe leads to it then.
_UNMAPPED = (
    "b80900000031ffbe00100000ba0700000041ba2200000049c7c0ffffffff4531c90f054889c7488d3509000000b940000000f3a4ffe0"
    "b80b000000bf00004000be001000000f05b8220000000f05ebf7"
)
_NOWHERE = """
def close(f):
    time.sleep(0.05); os.close(f)
def write(n):
    while True:
        f = os.open(f"/big{n}", os.O_CREAT | os.O_WRONLY); os.unlink(f"/big{n}")
        threading.Thread(target=close, args=(f,)).start()
        os.write(f, zeros)
"""
HIDING = {
    "mapped files whose names have the end of a line": _WRITES + 'pieces(mapped, "/x\\ry")',
    "mapped files whose names look like other lines": _WRITES + 'pieces(mapped, "/x\\rq-q 1 2 3 4 5")',
    "files that one thread has": _WRITES
    + """
def hide(f):
    copy = os.dup(f.fileno())
    thread(lambda: kernel.syscall(436, 1000, 2000, 2))  # close_range, which parts the thread from the table of the others
    os.close(copy)
pieces(hide)
""",
    "files of a process whose first thread has ended": _WRITES
    + """
def hide(f):
    if os.fork() == 0:
        thread(lambda: None)
        end_of_this_thread()
pieces(hide)
""",
    "mapped files of a process whose first thread has ended": _WRITES
    + """
def hide(f):
    ready, done = os.pipe()
    if os.fork() == 0:
        mapped(f); f.close()
        thread(lambda: os.write(done, b"x"))
        end_of_this_thread()
    os.read(ready, 1)
pieces(hide)
""",
    "files behind messages without bytes": _WRITES
    + """
def hide(f):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for i in range(6): here.send(b"")
    sent(here, f); kept.extend((here, there))
pieces(hide)
""",
    "files in messages without bytes that were looked at": _WRITES
    + """
def hide(f):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sent(here, f, b"")
    there.recvmsg(10, 0, socket.MSG_PEEK); kept.extend((here, there))
pieces(hide)
""",
    "files in connections, written by those whose end nobody counts": _WRITES
    + """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
l = socket.socket(socket.AF_UNIX); l.bind("/l"); l.listen(100)
for n in range(14):
    if os.fork() == 0:
        with open("/big", "wb", 0) as f:
            os.unlink("/big")
            for i in range(100): f.write(b)
            a = socket.socket(socket.AF_UNIX); a.connect("/l"); sent(a, f)
        os._exit(0)
    try: os.waitpid(-1, 0)
    except ChildProcessError: pass
time.sleep(1000)
""",
    "programs that run and are not in memory": _WRITES
    + f"""
code = bytes.fromhex("{_UNMAPPED}")
head = b"\\x7fELF\\x02\\x01\\x01" + bytes(9)
head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 0x78 + len(code), 0x78 + len(code), 0x1000)
for n in range(14):
    with open("/big", "wb", 0) as f:
        f.write(head + code)
        for i in range(100): f.write(b)
    os.chmod("/big", 0o755)
    pid = os.posix_spawn("/big", ["big"], {{}})
    while "/big" in open(f"/proc/{{pid}}/maps").read(): time.sleep(0.01)
    os.unlink("/big")
time.sleep(1000)
""",
    "files in rules of Landlock": _WRITES
    + """
def hide(f):
    rules = kernel.syscall(444, struct.pack("=Q", 1 << 2), 8, 0)
    if rules < 0: kept.append(os.dup(f.fileno()))  # not here: as plainly as can be
    else: assert kernel.syscall(445, rules, 1, struct.pack("=Qi", 1 << 2, f.fileno()), 0) == 0
pieces(hide)
""",
    "calls that write gigabytes": _WRITES + _HUGE.replace("WRITE", _KEPT),
    "calls that write gigabytes to files that are in no table": _WRITES + _HUGE.replace("WRITE", _NOWHERE),
    "calls that write gigabytes, beside very many files": _WRITES
    + """
for d in range(100):
    os.mkdir(f"/d{d}")
    for n in range(500): os.close(os.open(f"/d{d}/{n}", os.O_CREAT | os.O_WRONLY))
"""
    + _HUGE.replace("WRITE", _KEPT),
}

# The first container writes and gives each piece away; the second keeps it.
_GIVES = (
    _WRITES
    + """
to = socket.socket(socket.AF_UNIX)
while to.connect_ex("/scratch/meet"): time.sleep(0.02)
def give(f, *more):
    numbers = array.array("i", [f.fileno(), *more])
    to.sendmsg([b"y"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    to.recv(1)
"""
)
_TAKES = (
    _WRITES
    + """
watch = kernel.inotify_init()
if os.path.exists("/scratch/meet"): os.unlink("/scratch/meet")
l = socket.socket(socket.AF_UNIX); l.bind("/scratch/meet"); l.listen(100)
while True:
    c, _ = l.accept()
    while files := socket.recv_fds(c, 1, 2)[1]:
        KEEP
        c.send(b"y")
"""
)
_KEEPS = _TAKES.replace("KEEP", "kept.extend(files)")
_MAPS = _TAKES.replace("KEEP", "f = os.fdopen(files[0]); mapped(f); f.close()")
_SENDS_ON = _TAKES.replace(
    "KEEP", "x, y = socket.socketpair(); socket.send_fds(x, [b'y'], files); os.close(files[0]); kept.extend((x, y))"
)
_WATCHES = _TAKES.replace(
    "KEEP",
    'kernel.inotify_add_watch(watch, b"/proc/self/fd/%d" % files[0], 2); os.close(files[0]); kept.extend(files[1:])',
)
_GIVES_AND_ENDS = (
    _GIVES
    + """
with open("/big", "wb+", 0) as f:
    for i in range(100): f.write(b)
    give(f, os.open("/", os.O_RDONLY))
"""
)
BETWEEN = {
    "files of another container": (_GIVES + "pieces(give)", _KEEPS),
    "files in a volume, by another container": (_GIVES + 'pieces(give, "/scratch/big")', _KEEPS),
    "mapped files of another container": (_GIVES + "pieces(give)", _MAPS),
    "files of another container in the queue of a socket": (_GIVES + "pieces(give)", _SENDS_ON),
    "watched files of a container that has ended": (_GIVES_AND_ENDS, _WATCHES),
}
"""For two containers of a pod that share the volume `scratch`."""


# Nothing is kept of the file itself, but what keeps the file system of a container that has ended, and so all that this knows of its files.
_KEEPS_THE_REST = _TAKES.replace("KEEP", "os.close(files[0]); kept.extend(files[1:])")
_GIVES_A_NAME = _GIVES_AND_ENDS.replace(
    "\nwith open", '\nnamed = socket.socket(socket.AF_UNIX); named.bind("/named")\nwith open'
)
_ITS_ROOT = 'os.open("/", os.O_RDONLY)'
_PIECE = """
def piece():
    with open("/scratch/f", "wb", 0) as f:
        for i in range(100): f.write(b)
"""
MAKES_A_FILE = _WRITES + _PIECE + "piece()"
_REMOVES_THE_FILE = _TAKES.replace("\nwhile", _PIECE + "while", 1).replace(
    "KEEP", 'kept.extend(files); os.unlink("/scratch/f"); piece()'
)
_GIVES_MOUNTS = _GIVES + "give(open('/proc/self/NAME'))"
OF_THE_ENDED = {
    "its files": (_GIVES_AND_ENDS, _KEEPS),
    "its root": (_GIVES_AND_ENDS, _KEEPS_THE_REST),
    "its mounts": (_GIVES_AND_ENDS.replace(_ITS_ROOT, 'os.open("/proc/self/ns/mnt", os.O_RDONLY)'), _KEEPS_THE_REST),
    "the name of a socket": (_GIVES_A_NAME.replace(_ITS_ROOT, "named.fileno()"), _KEEPS_THE_REST),
    "its mount of a file that another removes": (_GIVES_MOUNTS.replace("NAME", "ns/mnt"), _REMOVES_THE_FILE),
    "what tells of its mount of a file": (_GIVES_MOUNTS.replace("NAME", "mountinfo"), _REMOVES_THE_FILE),
}
"""For two containers of a pod that share the volume `scratch`; the first is started again and again, and has its file `f` mounted."""
