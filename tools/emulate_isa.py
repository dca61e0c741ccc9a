#!/usr/bin/env python3
"""Runs programs on an emulated CPU: kernels whose instructions this machine lacks (AVX-512, VNNI, bf16, AMX).

  tools/emulate_isa.py build/release/objects/compute/compute_test -- --gtest_filter='*/avx512'

Bochs boots a Linux kernel whose only file system is an archive of the programs, the libraries they link and
busybox; each program runs with the arguments after `--`, its output comes over the serial line, and the exit
status is 0 if all of them exit with 0. One core, some 10^7 to 10^8 instructions a second: for unit tests.

docs/verification.md has the packages, how Bochs is built for it, and what has been run.
"""

import argparse
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

BOCHSRC = """
plugin_ctrl: unmapped=1, biosdev=1, speaker=0, serial=1
display_library: {display}
megs: {megs}
romimage: file={bios}
vgaromimage: file={vga}
cpu: model={cpu}, count=1, ips=40000000, reset_on_triple_fault=0, ignore_bad_msrs=1
clock: sync=none, time0=utc
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={iso}, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={serial}
log: {log}
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
"""

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /dev/shm
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
exec >/dev/ttyS0 2>&1
export GTEST_COLOR=no
echo "emulated: $(/bin/busybox grep -m1 'model name' /proc/cpuinfo)"
all=0
{runs}
echo "emulated: all $all"
/bin/busybox sleep 1
/bin/busybox poweroff -f
"""
RUN = """echo "emulated: run {name}"
{path} {arguments}
rc=$?
echo "emulated: exit {name} $rc"
[ $rc -eq 0 ] || all=1
"""


def needed_libraries(program):
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    paths = [word for line in listing.splitlines() for word in line.split() if word.startswith("/")]
    return sorted(set(paths))


def quoted(argument):
    return "'" + argument.replace("'", "'\\''") + "'"


def write_archive(root, programs, arguments, data, out):
    """The initial file system, as the kernel takes it: a gzipped cpio archive."""
    files = {"/bin/busybox": shutil.which("busybox")}
    runs = ""
    for program in programs:
        path = str(program.resolve())
        files[path] = path
        files.update({library: os.path.realpath(library) for library in needed_libraries(path)})
        runs += RUN.format(name=program.name, path=path, arguments=" ".join(map(quoted, arguments)))
    for folder in data:
        for file in sorted(folder.resolve().rglob("*")):
            if file.is_file():
                files[str(file)] = str(file)
    for inside, outside in files.items():
        target = root / inside.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(outside, target)
    init = root / "init"
    init.write_text(INIT.format(runs=runs))
    init.chmod(0o755)
    names = "\n".join(str(p.relative_to(root)) for p in sorted(root.rglob("*")))
    cpio = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(),
                          capture_output=True, check=True).stdout
    out.write_bytes(gzip.compress(cpio, 1))


def write_iso(folder, kernel, archive, boot, out):
    (folder / "boot").mkdir(parents=True)
    shutil.copy(kernel, folder / "boot/vmlinuz")
    shutil.copy(archive, folder / "boot/files.gz")
    for file in ("/usr/lib/ISOLINUX/isolinux.bin", "/usr/lib/syslinux/modules/bios/ldlinux.c32"):
        shutil.copy(file, folder)
    # What Linux 6.1 uses of these features, Bochs does not emulate well enough to boot.
    (folder / "isolinux.cfg").write_text(
        "default l\nprompt 0\nlabel l\n kernel /boot/vmlinuz\n append initrd=/boot/files.gz console=ttyS0 "
        "mitigations=off nokaslr tsc=reliable lpj=1000000 no_timer_check random.trust_cpu=on "
        "split_lock_detect=off clearcpuid=fsrm,umip,rdpid,pku,gfni,vaes,sha_ni,split_lock_detect quiet " + boot + "\n")
    subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", out, "-b", "isolinux.bin", "-c", "boot.cat",
                    "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", folder], check=True,
                   capture_output=True)


def follow(process, serial, timeout_s):
    """Prints what the machine says until it has run everything; its last status, or None."""
    begin, at = time.monotonic(), 0
    while True:
        alive = process.poll() is None
        text = serial.read_text(errors="replace") if serial.exists() else ""
        whole = text[:text.rfind("\n") + 1]
        for line in whole[at:].splitlines():
            print(f"{time.monotonic() - begin:7.1f} s  {line.rstrip()}", flush=True)
            if line.startswith("emulated: all "):
                return int(line.split()[-1])
        at = len(whole)
        if not alive or time.monotonic() - begin > timeout_s:
            return None
        time.sleep(0.5)


def default_kernel():
    found = sorted(pathlib.Path("/boot").glob("vmlinuz-*"))
    return found[-1] if found else None


def arguments_of(argv):
    cut = argv.index("--") if "--" in argv else len(argv)
    own, passed = argv[:cut], argv[cut + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    parser.add_argument("--cpu", default="corei7_icelake_u", help="model of Bochs (default: %(default)s)")
    parser.add_argument("--bochs", default="bochs", help="the emulator")
    parser.add_argument("--bios", type=pathlib.Path, default=pathlib.Path("/usr/share/bochs"))
    parser.add_argument("--display", default="nogui")
    parser.add_argument("--kernel", type=pathlib.Path, default=default_kernel())
    parser.add_argument("--boot", default="", help="more arguments of the kernel")
    parser.add_argument("--data", type=pathlib.Path, action="append", default=[], help="folder to take along")
    parser.add_argument("--megs", type=int, default=1024)
    parser.add_argument("--timeout-s", type=float, default=1800)
    flags = parser.parse_args(own)
    if flags.kernel is None:
        parser.error("no kernel in /boot: name one by --kernel (package linux-image-cloud-amd64)")
    return flags, passed


def main():
    flags, passed = arguments_of(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="emulate-") as name:
        folder = pathlib.Path(name)
        write_archive(folder / "root", flags.programs, passed, flags.data, folder / "files.gz")
        write_iso(folder / "iso", flags.kernel, folder / "files.gz", flags.boot, folder / "boot.iso")
        serial, log = folder / "serial", folder / "log"
        (folder / "bochsrc").write_text(BOCHSRC.format(
            display=flags.display, megs=flags.megs, bios=flags.bios / "BIOS-bochs-latest",
            vga=flags.bios / "VGABIOS-lgpl-latest", cpu=flags.cpu, iso=folder / "boot.iso", serial=serial, log=log))
        with open(folder / "console", "wb") as console:
            process = subprocess.Popen([flags.bochs, "-q", "-f", folder / "bochsrc"], stdin=subprocess.PIPE,
                                       stdout=console, stderr=console, start_new_session=True)
            try:
                process.stdin.write(b"c\n")  # Debian's has its debugger built in, which waits for this
                process.stdin.flush()
                status = follow(process, serial, flags.timeout_s)
            finally:
                process.kill()
                process.wait()
        if status is None:
            print("emulate_isa: the machine did not come to its end; Bochs' last words:", file=sys.stderr)
            tail = (log.read_text(errors="replace") if log.exists() else "").splitlines()[-20:]
            tail += (folder / "console").read_text(errors="replace").splitlines()[-10:]
            print("\n".join(tail), file=sys.stderr)
            return 2
        return status


if __name__ == "__main__":
    sys.exit(main())
