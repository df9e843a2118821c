/** The doctor's report about a machine inside a container with limits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { withHostFiles } from "../../../test/support/fake-host.js";
import { GiB } from "../../units/index.js";
import { readMachine } from "./machine.js";

test("the limits of a container are reported: processors, threads and memory", () => {
  const files = {
    "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n",
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/memory.max": `${2 * GiB}\n`,
    "sys/fs/cgroup/memory.current": `${GiB}\n`,
  };
  withHostFiles(files, (root) => {
    const { threads, cgroupCpus, memory } = readMachine({}, root);
    assert.deepEqual([threads, cgroupCpus], [1, 1.5]);
    assert.deepEqual([memory.availableBytes, memory.cgroupLimitBytes], [GiB, 2 * GiB]);
  });
});
