/** The number of threads on many kinds of machines, simulated by a root folder. */

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { withHostFiles } from "../../test/support/fake-host.js";
import { openCpuDriver } from "./cpu/index.js";
import { type HostThreadsInfo, readHostThreads } from "./host-threads.js";

/** On a machine with eight processors. */
function threadsWith(files: Readonly<Record<string, string>>): HostThreadsInfo {
  let info: HostThreadsInfo | undefined;
  withHostFiles(files, (root) => {
    info = readHostThreads(root, 8);
  });
  return info ?? assert.fail("nothing was read");
}

/** In a group of version 2, nested once. */
function nested(inner: string, outer: string): HostThreadsInfo {
  return threadsWith({
    "proc/self/cgroup": "0::/pod/container\n",
    "sys/fs/cgroup/pod/container/cpu.max": inner,
    "sys/fs/cgroup/pod/cpu.max": outer,
  });
}

const unlimited = { threads: 8, cgroupCpus: undefined };

test("without cgroups, and with cgroups without a limit, the system's number counts", () => {
  assert.deepEqual(threadsWith({}), unlimited);
  assert.deepEqual(threadsWith({ "proc/self/cgroup": "0::/\n" }), unlimited);
  assert.deepEqual(nested("max 100000\n", "max 100000\n"), unlimited);
});

test("the tightest limit counts, at any level above the process", () => {
  assert.deepEqual(nested("600000 100000\n", "200000 100000\n"), { threads: 2, cgroupCpus: 2 });
  assert.deepEqual(nested("200000 100000\n", "600000 100000\n"), { threads: 2, cgroupCpus: 2 });
  assert.deepEqual(nested("max 100000\n", "300000 100000\n"), { threads: 3, cgroupCpus: 3 });
});

test("a fraction of a processor is left unused, and less than one is still a thread", () => {
  assert.deepEqual(nested("150000 100000\n", "max 100000\n"), { threads: 1, cgroupCpus: 1.5 });
  assert.deepEqual(nested("399999 100000\n", "max 100000\n"), { threads: 3, cgroupCpus: 3.99999 });
  assert.deepEqual(nested("10000 100000\n", "max 100000\n"), { threads: 1, cgroupCpus: 0.1 });
});

test("a limit above what the system offers changes nothing", () => {
  assert.deepEqual(nested("6400000 100000\n", "max 100000\n"), { threads: 8, cgroupCpus: 64 });
});

test("version 1 limits are read, under either name of their folder, and −1 means none", () => {
  const membership = { "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/box/7\n0::/\n" };
  for (const name of ["cpu", "cpu,cpuacct"]) {
    const files = (quota: string) => ({
      ...membership,
      [`sys/fs/cgroup/${name}/cpu.cfs_quota_us`]: "-1\n",
      [`sys/fs/cgroup/${name}/cpu.cfs_period_us`]: "100000\n",
      [`sys/fs/cgroup/${name}/box/cpu.cfs_quota_us`]: quota,
      [`sys/fs/cgroup/${name}/box/cpu.cfs_period_us`]: "50000\n",
    });
    assert.deepEqual(threadsWith(files("125000\n")), { threads: 2, cgroupCpus: 2.5 }, name);
    assert.deepEqual(threadsWith(files("-1\n")), unlimited, name);
  }
});

test("malformed files are ignored, and other limits count", () => {
  for (const text of ["", "many\n", "100000\n", "-5 100000\n", "1e5 100000\n", "100000 0\n", "0 100000\n"]) {
    assert.deepEqual(nested(text, "max 100000\n"), unlimited, JSON.stringify(text));
    assert.deepEqual(nested(text, "200000 100000\n"), { threads: 2, cgroupCpus: 2 }, JSON.stringify(text));
  }
  assert.deepEqual(threadsWith({ "proc/self/cgroup": "not a line\n" }), unlimited);
});

test("a folder where a file should be is ignored", () => {
  withHostFiles({ "proc/self/cgroup": "0::/\n" }, (root) => {
    mkdirSync(join(root, "sys/fs/cgroup/cpu.max"), { recursive: true });
    assert.deepEqual(readHostThreads(root, 8), unlimited);
  });
});

test("the CPU driver uses this number by default", () => {
  const files = {
    "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n",
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/cpu.max": "150000 100000\n",
  };
  withHostFiles(files, (hostRoot) => {
    for (const [threads, expected] of [
      [undefined, 1],
      [3, 3],
    ] as const) {
      const driver = openCpuDriver({ hostRoot, ...(threads && { threads }) });
      assert.equal(driver.describe().parallelism, expected);
      driver.close();
    }
  });
});

test("the figures of this machine are plausible", () => {
  const { threads } = readHostThreads();
  assert.ok(threads >= 1 && threads <= availableParallelism());
});
