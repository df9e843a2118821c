/** The host's memory figures on many kinds of machines, simulated by a root folder. */

import assert from "node:assert/strict";
import { totalmem } from "node:os";
import { test } from "node:test";
import { withHostFiles } from "../../test/support/fake-host.js";
import { GiB, MiB } from "../units/index.js";
import { readHostMemory } from "./host-memory.js";

const eightGiB = "MemTotal:        8388608 kB\nMemFree:          100000 kB\nMemAvailable:    4194304 kB\n";

test("without cgroups the host's figures count", () => {
  withHostFiles({ "proc/meminfo": eightGiB }, (root) => {
    const expected = { total: 8 * GiB, available: 4 * GiB, binding: 8 * GiB };
    const { cgroupLimit, cgroupUsed, ...found } = readHostMemory(root);
    assert.deepEqual([found, cgroupLimit, cgroupUsed], [expected, undefined, undefined]);
  });
});

test("a cgroup's headroom limits the available memory, at any level above the process", () => {
  withHostFiles(
    {
      "proc/meminfo": eightGiB,
      "proc/self/cgroup": "0::/user.slice/job\n",
      "sys/fs/cgroup/user.slice/job/memory.max": "max\n",
      "sys/fs/cgroup/user.slice/job/memory.current": "1000\n",
      "sys/fs/cgroup/user.slice/memory.max": `${2 * GiB}\n`,
      "sys/fs/cgroup/user.slice/memory.current": `${1 * GiB}\n`,
    },
    (root) => {
      const expected = {
        ...{ total: 8 * GiB, available: 1 * GiB, binding: 2 * GiB },
        ...{ cgroupLimit: 2 * GiB, cgroupUsed: 1 * GiB },
      };
      assert.deepEqual(readHostMemory(root), expected);
    },
  );
});

test("the least headroom counts even if another cgroup has the tighter limit", () => {
  withHostFiles(
    {
      "proc/meminfo": eightGiB,
      "proc/self/cgroup": "0::/a/b\n",
      "sys/fs/cgroup/a/b/memory.max": `${2 * GiB}`,
      "sys/fs/cgroup/a/b/memory.current": "0",
      "sys/fs/cgroup/a/memory.max": `${3 * GiB}`,
      "sys/fs/cgroup/a/memory.current": `${3 * GiB - 5 * MiB}`,
    },
    (root) => {
      assert.equal(readHostMemory(root).available, 5 * MiB);
      assert.equal(readHostMemory(root).cgroupLimit, 2 * GiB);
      assert.equal(readHostMemory(root).binding, 3 * GiB);
    },
  );
});

test("page cache that the kernel would drop does not count as used", () => {
  withHostFiles(
    {
      "proc/meminfo": eightGiB,
      "proc/self/cgroup": "0::/\n",
      "sys/fs/cgroup/memory.max": `${GiB}`,
      "sys/fs/cgroup/memory.current": `${GiB}`,
      "sys/fs/cgroup/memory.stat": `anon 5\ninactive_file ${300 * MiB}\nactive_file 9\n`,
    },
    (root) => assert.equal(readHostMemory(root).available, 300 * MiB),
  );
});

test("a cgroup over its limit leaves nothing", () => {
  withHostFiles(
    {
      "proc/meminfo": eightGiB,
      "proc/self/cgroup": "0::/\n",
      "sys/fs/cgroup/memory.max": "1000",
      "sys/fs/cgroup/memory.current": "1500",
    },
    (root) => assert.equal(readHostMemory(root).available, 0),
  );
});

test("version 1 limits are read, and its huge number means none", () => {
  const files = {
    "proc/meminfo": eightGiB,
    "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/box/7\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "12345\n",
    "sys/fs/cgroup/memory/box/memory.limit_in_bytes": `${3 * GiB}\n`,
    "sys/fs/cgroup/memory/box/memory.usage_in_bytes": `${1 * GiB}\n`,
  };
  withHostFiles(files, (root) => {
    const { available, cgroupLimit, cgroupUsed } = readHostMemory(root);
    assert.deepEqual(
      { available, cgroupLimit, cgroupUsed },
      { available: 2 * GiB, cgroupLimit: 3 * GiB, cgroupUsed: GiB },
    );
  });
  withHostFiles(
    { ...files, "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "9223372036854771712" },
    (root) => {
      assert.equal(readHostMemory(root).cgroupLimit, undefined);
    },
  );
});

test("without /proc the figures of Node.js count", () => {
  withHostFiles({}, (root) => {
    const { total, available } = readHostMemory(root);
    assert.equal(total, totalmem());
    assert.ok(available > 0 && available <= total);
  });
});

for (const [path, content] of [
  ["proc/meminfo", "MemTotal: lots\n"],
  ["proc/meminfo", "MemTotal: 1 kB\n"],
  ["proc/self/cgroup", "not a line\n"],
  ["sys/fs/cgroup/memory.max", "-5\n"],
  ["sys/fs/cgroup/memory.current", "1e9\n"],
] as const) {
  test(`a malformed ${path} (${JSON.stringify(content)}) is an error that names the file`, () => {
    const sound = {
      "proc/meminfo": eightGiB,
      "proc/self/cgroup": "0::/\n",
      "sys/fs/cgroup/memory.max": "100",
      "sys/fs/cgroup/memory.current": "100",
    };
    withHostFiles({ ...sound, [path]: content }, (root) => {
      assert.throws(() => readHostMemory(root), {
        code: "DRIVER_FAILED",
        message: new RegExp(path.replaceAll(".", "\\.")),
      });
    });
    withHostFiles(sound, (root) => assert.equal(readHostMemory(root).cgroupLimit, 100));
  });
}

test("the figures of this machine are plausible", () => {
  const { total, available } = readHostMemory();
  assert.ok(total >= available && available > 0);
});
