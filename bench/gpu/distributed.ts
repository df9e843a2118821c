/**
 * Data parallelism on one GPU, with the real NCCL: the set-up of a communicator and its end, every collective eagerly, captured and replayed,
 * and the cost of the parallel path, alone and with one rank, as ratios to the plain step. Where NCCL lets ranks share a GPU (2.30.3 and later), two
 * processes train under MPS, and must end with the bits of one. Prints a table last, and ends within two minutes.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/distributed.js [--replays 10000] [--bytes 67108864] [--batch 256] [--seconds 3]
 *     [--precision tf32] [--device cuda|cpu|emulator] [--nccl FILE]
 *
 * `--device cpu` exchanges by MPI, and `--device emulator` runs on the emulator of CUDA's libraries, both as a trial.
 */

import "../source-modules.js";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import {
  crossasset,
  Device,
  distributed,
  fromTyped,
  HoldfastError,
  manualSeed,
  nn,
  optim,
  type Tensor,
} from "holdfast";
import {
  type Communicator,
  formatNcclVersion,
  MpiCommunicator,
  NcclCommunicator,
  ncclVersions,
  openNccl,
  type World,
} from "../../src/distributed/index.js";
import type { NodeCount } from "../../src/driver/index.js";
import { allGather, allToAll, broadcast, reduceScatter } from "../../src/ops/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { openEmulator } from "../../test/support/emulator.js";
import { C, F, makeRows, S } from "./training.js";

const options = readOptions(import.meta.url, {
  replays: { type: "string", default: "10000" },
  bytes: { type: "string", default: `${64 * 2 ** 20}` },
  batch: { type: "string", default: "256" },
  seconds: { type: "string", default: "3" },
  precision: { type: "string", default: "tf32" },
  device: { type: "string", default: "cuda" },
  nccl: { type: "string" },
});

/** The main thread may be in a call that never returns. */
const limitMs = 115_000;
new Worker(`setTimeout(() => process.kill(process.pid, "SIGKILL"), ${limitMs})`, { eval: true }).unref();
const startedAt = performance.now();
const leftMs = (): number => limitMs - (performance.now() - startedAt);

const isGpu = options.device !== "cpu";
const isEmulated = options.device === "emulator";
if (isEmulated) process.env["HOLDFAST_CUDA_PATH"] = openEmulator().folder;
const precision = options.precision === "f32" ? "f32" : options.precision === "bf16" ? "bf16" : "tf32";
const device = new Device(isGpu ? "cuda" : "cpu", {
  ...{ precision, print: () => undefined },
  ...(isEmulated && { stallAfter: "off", capture: "on" }),
});
const { runtime } = device;

const table: (readonly [string, string])[] = [];
const problems: string[] = [];
function note(what: string, result: string): void {
  table.push([what, result]);
  console.log(`… ${what}: ${result}`);
}
function check(what: string, holds: boolean, result: string): void {
  note(what, `${result}${holds ? "" : "  WRONG"}`);
  if (!holds) problems.push(what);
}
const ms = (duration: number): string => `${duration.toFixed(duration < 10 ? 3 : 0)} ms`;

// The library and its communicator.
const nccl = isGpu ? openNccl({ path: options.nccl }) : undefined;
const connect = (size: number, withinMs: number): Communicator => {
  if (!nccl) return new MpiCommunicator();
  runtime.synchronize();
  const share = (id: Uint8Array | undefined): Uint8Array => id ?? new Uint8Array(128);
  return new NcclCommunicator({ nccl, rank: 0, size, share, withinMs });
};
note("device", runtime.device.name);
let before = performance.now();
const communicator = connect(1, 30_000);
note("library", `${communicator.name}${nccl ? `, ${nccl.path}` : ""}`);
note("communicator of one rank", `made in ${ms(performance.now() - before)}`);

// Every collective: eagerly, then captured and replayed.
const names = ["allGather", "allToAll", "reduceScatter", "broadcast"] as const;
function exchange(name: (typeof names)[number], x: Tensor): Tensor {
  if (name === "allGather") return device.apply(allGather, [x], { communicator }).reshape([-1]);
  if (name === "allToAll")
    return device.apply(allToAll, [x.reshape([1, -1])], { communicator }).reshape([-1]);
  if (name === "reduceScatter") return device.apply(reduceScatter, [x.reshape([1, -1])], { communicator });
  return device.apply(broadcast, [x], { communicator, root: 0 });
}
const maxBytes = Number(options.bytes);
const sizes = [4, 4100, 2 ** 20 + 4, maxBytes].filter((bytes) => bytes <= maxBytes);
for (const name of names) {
  const times: string[] = [];
  let isRight = true;
  for (const bytes of sizes) {
    // Whole numbers that float32 has.
    const values = Float32Array.from(
      { length: bytes / 4 },
      (_, index) => Math.imul(index + 1, 0x9e3779b9) >> 8,
    );
    const x = device.keep(fromTyped(values, [values.length], { device }));
    device.step(() => {
      const read = exchange(name, x).dataSync() as Float32Array;
      isRight &&=
        Buffer.compare(
          Buffer.from(read.buffer, read.byteOffset, read.byteLength),
          Buffer.from(values.buffer),
        ) === 0;
    });
    const count = 20;
    before = performance.now();
    device.step(() => {
      for (let index = 0; index < count; index++) exchange(name, x);
      runtime.synchronize();
    });
    times.push(`${bytes} B ${((1000 * (performance.now() - before)) / count).toFixed(1)} µs`);
    x.release();
  }
  check(`${name}, eager`, isRight, `${isRight ? "right" : "other bytes"}; ${times.join(", ")}`);
}

const replays = Number(options.replays);
{
  // Their sums over 150,000 replays are exact in float32.
  const values = Float32Array.from({ length: 1 << 16 }, (_, index) => index % 100);
  const x = device.keep(fromTyped(values, [values.length], { device }));
  const sum = device.keep(fromTyped(new Float32Array(values.length), [values.length], { device }));
  const step = device.compile(() => {
    let y = x;
    for (const name of names) y = exchange(name, y);
    sum.add_(y);
    return { first: sum.narrow(0, 1, 1).reshape([]) };
  });
  step();
  runtime.synchronize();
  const { mode, nodes } = modeOf(step);
  check(
    "collectives in a captured step",
    mode === "graph" || !isGpu,
    `${mode}, nodes ${JSON.stringify(nodes)}`,
  );
  before = performance.now();
  for (let replay = 0; replay < replays; replay++) step();
  runtime.synchronize();
  const us = (1000 * (performance.now() - before)) / replays;
  const read = sum.dataSync() as Float32Array;
  const isRight = read.every((value, index) => value === (values[index] ?? 0) * (replays + 1));
  check(`${replays} replays of it`, isRight, `${isRight ? "right" : "wrong sums"}; ${us.toFixed(2)} µs each`);
  step.close();
  x.release();
  sum.release();
}

// What the parallel path costs a step.
const world: World = {
  ...{ rank: 0, size: 1, localRank: 0, communicator },
  launch: { launcher: undefined, rank: 0, size: 1, localRank: 0, master: undefined, restarts: 0 },
  ranks: [{ rank: 0, size: 1, host: "localhost", pid: process.pid }],
  traffic: { collectives: 0, sentBytes: 0, ms: 0 },
  exchange: (_, value) => [value],
  barrier: () => undefined,
  attach: () => undefined,
  fail: () => undefined,
  close: () => undefined,
};
const batch = Number(options.batch);
const rows = makeRows(batch, "random");
const x = device.keep(fromTyped(rows.x, [batch, S, F], { device }));
const labels = device.keep(fromTyped(rows.labels, [batch, S], { device }));
const lossOf = (model: crossasset.CrossAsset, inputs: Tensor, targets: Tensor): Tensor =>
  nn.functional.crossEntropy(model.forward(inputs).reshape([-1, C]), targets.reshape([-1]));

/** `of`: the world of the step's data parallelism; undefined for a step without it. */
function makeStep(of: World | undefined) {
  manualSeed(42);
  const model = new crossasset.CrossAsset({}).to(device);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 1e-3 });
  const parallel = of && new distributed.DataParallel(of);
  parallel?.broadcast(model);
  return device.compile((inputs: Tensor, targets: Tensor) => {
    let loss: Tensor;
    if (parallel)
      loss = parallel.backward(parameters, [inputs, targets], (...part) => lossOf(model, ...part));
    else {
      loss = lossOf(model, inputs, targets);
      loss.backward();
    }
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  });
}
{
  const ways = [
    { name: `CrossAsset, batch ${batch}, ${precision}: plain step`, step: makeStep(undefined) },
    { name: "the same through DataParallel, alone", step: makeStep(distributed.init()) },
    { name: "the same, exchanging with one rank", step: makeStep(world) },
  ];
  const steps = ways.map(({ step }) => step);
  const timed = (step: (typeof steps)[number], count: number): number => {
    const from = performance.now();
    for (let index = 0; index < count; index++) step(x, labels);
    runtime.synchronize();
    return (performance.now() - from) / count;
  };
  let one = 0;
  // Autotuning of schedules takes a few dozen calls.
  for (const step of steps) for (let index = 0; index < (isEmulated ? 1 : 60); index++) one = timed(step, 1);
  const rounds = isEmulated ? 1 : 9;
  const each = Math.max(1, Math.floor((1000 * Number(options.seconds)) / one / rounds / steps.length));
  const times = Array.from({ length: rounds }, () => steps.map((step) => timed(step, each)));
  const median = (index: number): number =>
    times.map((round) => round[index] ?? 0).sort((a, b) => a - b)[rounds >> 1] ?? 0;
  for (const [index, { name, step }] of ways.entries()) {
    const ratio = index > 0 ? `, ratio ${(median(index) / median(0)).toFixed(4)}` : "";
    const calls = step.report()[0]?.calls ?? [];
    const exchanges = calls.filter(({ op }) => names.some((collective) => op.includes(collective)));
    const streams = [...new Set(exchanges.map(({ stream }) => stream))].join();
    const collectives = exchanges.length > 0 ? `, ${exchanges.length} collectives on stream ${streams}` : "";
    note(name, `${ms(median(index))}, ${calls.length} calls${collectives}, ${modeOf(step).mode}${ratio}`);
  }
  for (const step of steps) step.close();
}

// Ends: of a set-up that can't complete, and of a communicator.
if (nccl && isGpu) {
  before = performance.now();
  let answer = "no error";
  try {
    connect(2, 3000);
  } catch (error) {
    answer = error instanceof HoldfastError ? error.code : String(error);
  }
  check(
    "set-up of two ranks without the second",
    answer === "RANK_LOST",
    `${answer} after ${ms(performance.now() - before)}`,
  );
}
before = performance.now();
if (communicator instanceof NcclCommunicator) communicator.abort();
else communicator.close();
const endedMs = performance.now() - before;
const works = device.step(() => x.mul(0).sum().item()) === 0;
check(
  `${isGpu ? "abort" : "end"} of the communicator`,
  works,
  `${ms(endedMs)}; the device ${works ? "works on" : "is lost"}`,
);
device.close();

await shareGpu();

for (const [what, result] of table) console.log(`${what.padEnd(56)} ${result}`);
if (problems.length > 0) console.log(`WRONG: ${problems.join("; ")}`);
process.exit(problems.length > 0 ? 1 : 0);

function modeOf(step: object): { readonly mode: string; readonly nodes: NodeCount | undefined } {
  const { mode = "not run", nodes } = latestPlanOf(step)?.replayable ?? {};
  return { mode, nodes };
}

/** Two ranks on this GPU, if its NCCL can. */
async function shareGpu(): Promise<void> {
  const what = "two ranks on one GPU";
  if (!nccl) return;
  if (nccl.version < ncclVersions.sharedGpu)
    return note(what, `not tried: NCCL ${formatNcclVersion(nccl.version)} can't, 2.30.3 and later can`);
  const folder = mkdtempSync(join(tmpdir(), "holdfast-mps-"));
  const environment: NodeJS.ProcessEnv = {
    ...process.env,
    ...(!isEmulated && { CUDA_MPS_PIPE_DIRECTORY: folder, CUDA_MPS_LOG_DIRECTORY: folder }),
    ...{ NCCL_MULTI_RANK_GPU_ENABLE: "1", NCCL_NVLS_ENABLE: "0", NCCL_MAX_CTAS: "4", NCCL_DEBUG: "WARN" },
    HOLDFAST_STALL_AFTER: "off",
    ...{ MASTER_ADDR: "127.0.0.1", MASTER_PORT: `${20_000 + (process.pid % 20_000)}`, WORLD_SIZE: "2" },
  };
  try {
    if (!isEmulated) {
      const daemon = spawnSync("nvidia-cuda-mps-control", ["-d"], {
        env: environment,
        encoding: "utf8",
        timeout: 10_000,
      });
      if (daemon.status !== 0)
        return note(what, `not tried: MPS does not start: ${daemon.error?.message ?? daemon.stderr}`);
    }
    const outputs = await Promise.all(
      [0, 1].map((rank) => train({ ...environment, RANK: `${rank}`, LOCAL_RANK: "0" })),
    );
    const { WORLD_SIZE: _, ...alone } = environment;
    const expected = await train(alone);
    const isSame = outputs.every((output) => output === expected);
    check(what, isSame, isSame ? "the bits of one process" : JSON.stringify({ expected, outputs }));
  } finally {
    if (!isEmulated)
      spawnSync("nvidia-cuda-mps-control", [], { env: environment, input: "quit\n", timeout: 10_000 });
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The losses and the checksum of a rank's weights. */
async function train(environment: NodeJS.ProcessEnv): Promise<string> {
  const script = fileURLToPath(new URL("../../test/fixtures/ranks/gpu-training.js", import.meta.url));
  const child = spawn(process.execPath, ["--conditions=holdfast-source", script, "4", "3"], {
    env: environment,
    stdio: ["ignore", "pipe", "inherit"],
    timeout: Math.round(Math.max(1000, Math.min(45_000, leftMs() - 5000))),
    killSignal: "SIGKILL",
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  await once(child, "close");
  return /losses .* end/.exec(output)?.[0] ?? `no result: ${output.slice(0, 200)}`;
}
