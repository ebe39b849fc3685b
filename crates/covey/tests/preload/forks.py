"""Forks while four threads read and write: parent and children must all go on."""
import os
import subprocess
import sys
import threading

top = sys.argv[1]
over = threading.Event()
failures = []


def work(number):
    turn = 0
    while not over.is_set():
        path = f"{top}/{number}-{turn % 5}"
        with open(path, "wb") as file:
            file.write(bytes([number]) * 1000)
        if open(path, "rb").read() != bytes([number]) * 1000:
            failures.append(path)
        turn += 1


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
try:
    for number in range(12):
        path = f"{top}/child{number}"
        child = os.fork()
        if child == 0:
            right = False
            try:
                with open(path, "w") as file:
                    file.write("child")
                right = open(path).read() == "child"
            finally:
                os._exit(0 if right else 1)
        _, status = os.waitpid(child, 0)
        if status != 0 or subprocess.check_output(["cat", path]) != b"child":
            failures.append(path)
finally:
    # Else an exception here would leave the threads running for good.
    over.set()
for thread in threads:
    thread.join()
print(failures, len([name for name in os.listdir(top) if name.startswith("child")]))
