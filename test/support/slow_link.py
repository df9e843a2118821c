"""
A link between two network namespaces that delays each packet and loses some, for kernels without sch_netem: two tun devices, and a loop that
carries packets from one to the other. Prints "ready" when the link is up, and what it has carried when it is told to end (SIGTERM).

usage: slow_link.py NAMESPACE NAMESPACE DELAY_MS LOSS_PERCENT
"""

import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000

namespaces = sys.argv[1:3]
delay = float(sys.argv[3]) / 1000
loss = float(sys.argv[4]) / 100
draw = random.Random(20261119)


def open_tun(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


devices = []
for index, namespace in enumerate(namespaces):
    name = f"{namespace}-tun"
    devices.append(open_tun(name))
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
    inside = ["ip", "-n", namespace]
    subprocess.run([*inside, "addr", "add", f"10.199.0.{index + 1}/24", "dev", name], check=True)
    subprocess.run([*inside, "link", "set", name, "up"], check=True)
    subprocess.run([*inside, "link", "set", "lo", "up"], check=True)

carried = lost = 0


def report(*_):
    print(f"carried {carried} lost {lost}", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, report)
print("ready", flush=True)

# (when it is due, a serial number, where it goes, the packet)
waiting = []
while True:
    timeout = None if not waiting else max(0, waiting[0][0] - time.monotonic())
    for source in select.select(devices, [], [], timeout)[0]:
        packet = os.read(source, 65536)
        if draw.random() < loss:
            lost += 1
            continue
        carried += 1
        target = devices[1 - devices.index(source)]
        heapq.heappush(waiting, (time.monotonic() + delay, carried, target, packet))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, target, packet = heapq.heappop(waiting)
        try:
            os.write(target, packet)
        except BlockingIOError:
            lost += 1
