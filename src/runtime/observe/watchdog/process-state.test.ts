/** The state of a process, as /proc reports it. */

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { isStopped, readProcessState } from "./process-state.js";

describe("the state of a process", () => {
  let proc: string;
  beforeEach(() => {
    proc = mkdtempSync(join(tmpdir(), "holdfast-proc-"));
  });
  afterEach(() => rmSync(proc, { recursive: true }));

  function put(path: string, text: string): void {
    mkdirSync(dirname(join(proc, path)), { recursive: true });
    writeFileSync(join(proc, path), text);
  }

  it("has each thread with its name, state, wait channel and system call", () => {
    put("9/task/9/stat", "9 (node) S 1 9 9 0 -1");
    put("9/task/9/wchan", "futex_do_wait");
    put("9/task/9/syscall", "202 0x7f 0x80");
    put("9/task/10/stat", "10 (cuda (evt) 1) D 1 9 9 0 -1");
    put("9/task/11/stat", "11 (busy) R 1 9 9 0 -1");
    put("9/task/11/wchan", "0");
    put("9/task/11/syscall", "running");
    const { threads } = readProcessState(9, proc);
    assert.deepEqual(
      threads.toSorted((a, b) => a.id - b.id),
      [
        { id: 9, name: "node", state: "S", waitChannel: "futex_do_wait", systemCall: 202 },
        { id: 10, name: "cuda (evt) 1", state: "D" },
        { id: 11, name: "busy", state: "R" },
      ],
    );
  });

  it("has the memory of the process and of the machine", () => {
    put("9/status", "Name:\tnode\nVmRSS:\t    2048 kB\nThreads:\t1\n");
    put("meminfo", "MemTotal:       100 kB\nMemAvailable:   64 kB\n");
    put("pressure/memory", "some avg10=1.50 total=9\nfull avg10=0.00 total=0\n");
    const state = readProcessState(9, proc);
    assert.equal(state.residentBytes, 2048 * 1024);
    assert.equal(state.availableBytes, 64 * 1024);
    assert.deepEqual(state.memoryPressure, ["some avg10=1.50 total=9", "full avg10=0.00 total=0"]);
  });

  it("omits everything on a system without /proc", () => {
    assert.deepEqual(readProcessState(9, join(proc, "nowhere")), { threads: [] });
  });

  it("is stopped by a signal or a debugger, and not while it sleeps, runs or has exited", () => {
    for (const [letter, expected] of Object.entries({ T: true, t: true, S: false, R: false, D: false })) {
      put("9/stat", `9 (a (node) T) ${letter} 1 9 9 0 -1`);
      assert.equal(isStopped(9, proc), expected, letter);
    }
    assert.equal(isStopped(10, proc), false);
  });
});
