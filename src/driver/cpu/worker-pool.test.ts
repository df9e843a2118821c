/** The worker pool: launches are shared, traps are reported, and closing ends all threads. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import type { Worker } from "node:worker_threads";
import { effort } from "../../../test/support/effort.js";
import { withFault } from "../../../test/support/failing-calls.js";
import { plainEnvironment } from "../../../test/support/plain-environment.js";
import { repositoryRoot } from "../../../test/support/repository.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { generousTimeoutMs } from "../../../test/support/timeouts.js";
import { beatCounter, sleepSync } from "../../units/index.js";
import type { KernelSource } from "../driver.js";
import { basicKernels, blockCount } from "./basic-kernels.js";
import { compileKernel } from "./kernel.js";
import { type Code, encodeModule } from "./wasm.js";
import { type LoadedKernel, WorkerPool } from "./worker-pool.js";

/** Large enough to be worth sharing on any machine. */
const elements = 2 ** 20 + 3;
const bytesOfData = elements * 4;

function openPool(threads: number) {
  const memory = new WebAssembly.Memory({ initial: 200, maximum: 4096, shared: true });
  const pool = new WorkerPool(threads, memory);
  let lastId = 0;
  const load = (source: KernelSource): LoadedKernel => {
    lastId++;
    const kernel = { id: lastId, name: source.name, ...compileKernel(source, memory) };
    pool.load(kernel);
    return kernel;
  };
  return { memory, pool, load };
}

/** Workers take a while to start, so this repeats a launch until they have run blocks of it. */
function repeatUntil(isSeen: () => boolean, act: () => void): void {
  const deadlineMs = performance.now() + generousTimeoutMs;
  for (act(); !isSeen(); act()) {
    assert.ok(performance.now() < deadlineMs, `not seen within ${generousTimeoutMs} ms`);
    sleepSync(2);
  }
}

test("1, 2 and 4 threads give the same bits, and workers run some of the blocks", () => {
  const values = Float32Array.from({ length: elements }, (_, i) => ((i * 7919) % 10_007) / 7 - 700);
  const results = [1, 2, 4].map((threads) => {
    const { memory, pool, load } = openPool(threads);
    new Float32Array(memory.buffer, 65_536, elements).set(values);
    const sum = load(basicKernels.sum);
    const partials = 65_536 + bytesOfData;
    const bits = new Uint32Array(memory.buffer, partials, blockCount(elements));
    repeatUntil(
      () => threads === 1 || pool.statistics.workerBlocks > 0,
      () => {
        bits.fill(0xffffffff);
        pool.run(sum, blockCount(elements), [0, 0, 65_536, partials, elements]);
      },
    );
    assert.equal(pool.statistics.sharedLaunches > 0, threads > 1);
    pool.close();
    return bits.slice();
  });
  sameBytes(results[1]!, results[0]!, "two threads");
  sameBytes(results[2]!, results[0]!, "four threads");
});

test("if the system starts fewer threads, they share the launch, with a warning", async () => {
  const warnings: string[] = [];
  const note = ({ message }: Error): void => void warnings.push(message);
  process.on("warning", note);
  const { memory, pool, load } = openPool(3);
  const data = new Float32Array(memory.buffer, 65_536, elements).fill(1);
  const sum = load(basicKernels.sum);
  const sums = new Float32Array(memory.buffer, 65_536 + bytesOfData, blockCount(elements));
  await withFault({ kind: "thread", nth: 2, how: "EAGAIN" }, async () => {
    for (let time = 0; time < 2; time++)
      pool.run(sum, sums.length, [0, 0, data.byteOffset, sums.byteOffset, elements]);
  });
  assert.equal(
    sums.reduce((total, sum) => total + sum),
    elements,
  );
  pool.close();
  await new Promise(setImmediate);
  process.off("warning", note);
  assert.equal(warnings.length, 1);
  assert.match(
    warnings[0] ?? "",
    /could not start a thread of the CPU driver \(.*EAGAIN\)\. Kernels run on 2 of 3 threads\./,
  );
});

test("every chunk of a shared launch records a heartbeat, on any thread", () => {
  const { pool, load } = openPool(2);
  const sum = load(basicKernels.sum);
  const beats = beatCounter();
  let [counted, ownBlocks] = [0, 0];
  repeatUntil(
    // This thread runs few blocks of the launch, so most heartbeats are the worker's.
    () => ownBlocks > 0 && ownBlocks < blockCount(elements) / 2,
    () => {
      const [before, workerBlocks] = [beats(), pool.statistics.workerBlocks];
      pool.run(sum, blockCount(elements), [0, 0, 65_536, 65_536 + bytesOfData, elements]);
      counted = beats() - before;
      ownBlocks = blockCount(elements) - (pool.statistics.workerBlocks - workerBlocks);
    },
  );
  // Sixteen chunks for two threads, independent of the time per block.
  assert.ok(counted >= 16, `${counted}`);
  pool.close();
});

/** The workers that `act` starts. Node.js reports a new worker only on the next tick. */
async function workersStartedBy(act: () => void): Promise<Worker[]> {
  await new Promise(setImmediate);
  const started: Worker[] = [];
  const note = (worker: Worker) => started.push(worker);
  process.on("worker", note);
  act();
  await new Promise(setImmediate);
  process.off("worker", note);
  return started;
}

test("a launch of one block runs on the calling thread and starts no workers", async () => {
  const { pool, load } = openPool(4);
  const fill = load(basicKernels.fill);
  const started = await workersStartedBy(() => {
    for (let i = 0; i < 1000; i++) pool.run(fill, 1, [0, 0, 65_536, i, 4096]);
  });
  assert.deepEqual(pool.statistics, { sharedLaunches: 0, workerBlocks: 0 });
  assert.equal(started.length, 0);
  pool.close();
});

test("workers use kernels loaded and memory grown after their start", () => {
  const { memory, pool, load } = openPool(2);
  const fill = load(basicKernels.fill);
  repeatUntil(
    () => pool.statistics.workerBlocks > 0,
    () => pool.run(fill, blockCount(elements), [0, 0, 65_536, 0, elements]),
  );
  const expected = new Float32Array(elements);
  for (let round = 1; round <= effort({ quick: 8, thorough: 40 }); round++) {
    const end = memory.buffer.byteLength;
    memory.grow(Math.ceil(bytesOfData / 65_536));
    const late = load({ ...basicKernels.fill });
    pool.run(late, blockCount(elements), [0, 0, end, round, elements]);
    const written = new Float32Array(memory.buffer, end, elements);
    sameBytes(written, expected.fill(round), `round ${round}`);
    pool.unload(late);
  }
  const before = pool.statistics.workerBlocks;
  repeatUntil(
    () => pool.statistics.workerBlocks > before,
    () => pool.run(fill, blockCount(elements), [0, 0, 65_536, 0, elements]),
  );
  pool.close();
});

/** Counts down, so that a block takes time. */
function dawdle(code: Code): void {
  const left = code.local("i32");
  code.i32(200_000).set(left);
  code.loop((again) => code.get(left).i32(-1).op("i32.add").tee(left).branchIf(again));
}

/** Runs for a while, then writes 1 to the byte of each block. */
const slowMarks: KernelSource = {
  name: "slowMarks",
  parameters: ["out"],
  wasm: encodeModule([
    {
      name: "slowMarks",
      parameters: ["i32", "i32", "i32"],
      results: [],
      body: (code) => {
        const [first, end, out] = [code.parameter(0), code.parameter(1), code.parameter(2)];
        dawdle(code);
        code.get(out).get(first).op("i32.add").i32(1);
        code.get(end).get(first).op("i32.sub").op("memory.fill");
      },
    },
  ]),
};

test("a launch returns only after the workers' blocks have run", () => {
  const { memory, pool, load } = openPool(2);
  const slow = load(slowMarks);
  const marks = new Uint8Array(memory.buffer, 65_536, 3);
  let workerRounds = 0;
  repeatUntil(
    () => workerRounds >= 20,
    () => {
      const before = pool.statistics.workerBlocks;
      marks.fill(0);
      pool.run(slow, 3, [0, 0, 65_536]);
      assert.deepEqual([...marks], [1, 1, 1]);
      if (pool.statistics.workerBlocks > before) workerRounds++;
    },
  );
  pool.close();
});

/** Runs for a while, then traps in the call that contains block `last`. */
function trapsInBlock(last: number): KernelSource {
  const wasm = encodeModule([
    {
      name: "brittle",
      parameters: ["i32", "i32"],
      results: [],
      body: (code) => {
        dawdle(code);
        code.get(code.parameter(1)).i32(last).op("i32.gt_u");
        code.if(() => code.op("unreachable"));
      },
    },
  ]);
  return { name: "brittle", parameters: [], wasm };
}

test("a trap on any thread names the kernel and the trap, and the pool stays usable", () => {
  const { memory, pool, load } = openPool(2);
  const brittle = load(trapsInBlock(63));
  const add = load(basicKernels.add);
  const trapped = { inWorker: 0, here: 0 };
  repeatUntil(
    () => trapped.inWorker > 0 && trapped.here > 0,
    () => {
      assert.throws(
        () => pool.run(brittle, 64, [0, 0]),
        (error: Error & { code?: string }) => {
          assert.equal(error.code, "KERNEL_FAILED");
          assert.match(error.message, /Kernel "brittle" trapped in a launch of 64 blocks: .*unreachable/);
          trapped[error.cause instanceof WebAssembly.RuntimeError ? "here" : "inWorker"]++;
          return true;
        },
      );
    },
  );
  const data = new Float32Array(memory.buffer, 65_536, elements).fill(2);
  pool.run(add, blockCount(elements), [0, 0, 65_536, 65_536, 65_536, elements]);
  assert.equal(
    data.findIndex((value) => value !== 4),
    -1,
  );
  pool.close();
});

test("after close() every worker exits by itself", async () => {
  const { pool, load } = openPool(3);
  const fill = load(basicKernels.fill);
  const started = await workersStartedBy(() =>
    repeatUntil(
      () => pool.statistics.workerBlocks > 0,
      () => pool.run(fill, blockCount(elements), [0, 0, 65_536, 1, elements]),
    ),
  );
  assert.equal(started.length, 2);
  for (const worker of started) worker.ref();
  const exits = started.map((worker) => once(worker, "exit"));
  pool.close();
  assert.deepEqual(await Promise.all(exits), [[0], [0]]);
});

test("a lost worker is a warning, and launches continue", async () => {
  const { memory, pool, load } = openPool(2);
  const fill = load(basicKernels.fill);
  const [worker] = await workersStartedBy(() => {
    pool.run(fill, blockCount(elements), [0, 0, 65_536, 1, elements]);
  });
  const warned = once(process, "warning");
  worker!.emit("error", new Error("out of memory"));
  const [warning] = (await warned) as [Error & { code?: string }];
  assert.equal(warning.code, "HOLDFAST_WORKER_ENDED");
  assert.match(warning.message, /fewer threads.*out of memory/);
  pool.run(fill, blockCount(elements), [0, 0, 65_536, 7, elements]);
  assert.equal(new Float32Array(memory.buffer, 65_536, elements).at(-1), 7);
  pool.close();
});

test("a process exits by itself with the workers of a closed driver and of an open one", () => {
  const script = `
    import { once } from "node:events";
    import { basicKernels, openCpuDriver } from "holdfast/internals";
    const online = [];
    process.on("worker", (worker) => online.push(once(worker, "online")));
    const waiting = setInterval(() => {}, 1000);
    const drivers = [];
    for (let at = 0; at < 2; at++) {
      const driver = openCpuDriver({ threads: 3 });
      const stream = driver.createStream();
      const memory = driver.reserve(2 ** 22);
      driver.commit(memory);
      const fill = driver.loadKernel(basicKernels.fill);
      const run = () => {
        driver.launch(stream, { kernel: fill, blocks: 256, arguments: [memory, 7, 2 ** 20] });
        driver.synchronize(stream);
      };
      // A launch that is not shared starts no workers.
      while (online.length < 2 * (at + 1)) {
        run();
        await new Promise(setImmediate);
      }
      await Promise.all(online);
      run();
      drivers.push(driver);
    }
    drivers[0].close();
    clearInterval(waiting);
    console.log("done");`;
  const child = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    ...{ cwd: repositoryRoot, env: plainEnvironment, timeout: generousTimeoutMs },
  });
  assert.deepEqual([child.status, String(child.stdout), String(child.stderr)], [0, "done\n", ""]);
});

for (const threads of [1, 2]) {
  test(`a long launch records heartbeats, on ${threads} threads, and runs every block once`, () => {
    const { pool } = openPool(threads);
    const beats = beatCounter();
    const [blocks, beatsBefore] = [32, beats()];
    const ran = new Uint8Array(blocks);
    const spin = (first = 0, end = 0): void => {
      const endMs = performance.now() + 2 * (end - first);
      while (performance.now() < endMs);
      for (let block = first; block < end; block++) ran[block] = (ran[block] ?? 0) + 1;
    };
    // Workers do not have this kernel, so this thread runs all of it.
    const kernel = { id: 1, name: "slow", module: {} as WebAssembly.Module, run: spin };
    pool.run(kernel, blocks, [0, 0]);
    pool.close();
    assert.ok(beats() - beatsBefore >= 5, `${beats() - beatsBefore} beats`);
    assert.deepEqual(new Set(ran), new Set([1]));
  });
}
