"""Python's own ways with files, in the directory that is named; it says the same wherever that is."""
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile

os.chdir(sys.argv[1])
with open("text", "w") as file:
    file.write("line\n" * 1000)
print(len(open("text").readlines()), os.path.getsize("text"))
os.makedirs("a/b/c")
shutil.copy("text", "a/b/c/text")
shutil.copytree("a", "d")
print(sorted((top, sorted(dirs), sorted(files)) for top, dirs, files in os.walk(".")))
with open("listing", "w") as file:
    subprocess.run(["ls", "d/b/c"], stdout=file, check=True)
print(open("listing").read().strip(), subprocess.check_output(["cat"], stdin=open("listing")))
with open("binary", "w+b") as file:
    file.write(bytes(range(256)) * 400)
    file.seek(-256, os.SEEK_END)
    print(file.read()[:3], file.tell())
    file.truncate(1000)
    fcntl.lockf(file, fcntl.LOCK_EX, 10)
    fcntl.lockf(file, fcntl.LOCK_UN, 10)
    os.fsync(file.fileno())
print(os.stat("binary").st_size)
with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
    file.write(b"temporary")
os.replace(file.name, "replaced")
print(open("replaced").read(), os.path.relpath(os.path.realpath("a/../text")))
print(sorted(entry.name for entry in os.scandir(".") if entry.is_dir()))
shutil.rmtree("a")
shutil.rmtree("d")
try:
    open("a/b", "w")
except FileNotFoundError as error:
    print(error)
print(sorted(os.listdir(".")))
