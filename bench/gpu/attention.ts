/**
 * `npm run bench:gpu -- --only attention`: the rates of flash attention in bf16, forward and backward, beside those of PyTorch's
 * scaled_dot_product_attention by its fastest backend, if python3 has PyTorch. The target is 75 % of the peer's rate.
 */

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import {
  attentionBackwardCalls,
  attentionCalls,
  type BackwardProblem,
  type ForwardProblem,
} from "../../src/kernels/attention/index.js";
import { backendOf, lowerCalls } from "../../src/kernels/backend.js";
import type { KernelCall } from "../../src/kernels/kernel-call.js";
import type { Runtime, Storage } from "../../src/runtime/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { repositoryRoot } from "../../test/support/repository.js";
import { commonOptions, count, openGpu } from "./options.js";
import { Results } from "./results.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  calls: { type: "string", default: "100" },
  /** The smallest lengths alone, with few heads: a trial on the emulator. */
  small: { type: "boolean", default: false },
});
const calls = count("calls", options.calls);
const minShare = 0.75;

interface Shape {
  readonly batch: number;
  readonly heads: number;
  readonly rows: number;
  readonly width: number;
  readonly isCausal: boolean;
}

interface Times {
  readonly forward: number;
  readonly backward: number;
}

const shapes: readonly Shape[] = (options.small ? [70] : [1024, 2048, 4096]).flatMap((rows) =>
  [64, 128].flatMap((width) =>
    [true, false].map((isCausal) => {
      const [batch, heads] = options.small ? [1, 2] : [Math.ceil(8192 / rows), 1024 / width];
      return { batch, heads, rows, width, isCausal };
    }),
  ),
);

/** The mean time of a call, in microseconds. */
function microsecondsOf(runtime: Runtime, kernelCalls: readonly KernelCall[]): number {
  const loaded = runtime.load(lowerCalls(backendOf(runtime), kernelCalls));
  const run = (times: number): number => {
    const startedAt = performance.now();
    for (let call = 0; call < times; call++) runtime.submit(loaded);
    runtime.synchronize();
    return ((performance.now() - startedAt) * 1000) / times;
  };
  run(Math.ceil(calls / 10));
  return run(calls);
}

function measure(runtime: Runtime, { batch, heads, rows, width, isCausal }: Shape): Times {
  const elements = batch * heads * rows * width;
  const made = (bytes: number, label: string): Storage => {
    const storage = runtime.arena.allocate(bytes, label);
    runtime.fill(storage, 0);
    return storage;
  };
  // [batch, heads, rows, width], as the peer has it.
  const operand = (label: string) => ({
    ...{ storage: made(2 * elements, label), dtype: "bf16" as const },
    ...{ batchStride: heads * rows * width, headStride: rows * width, rowStride: width },
  });
  const statistics = made(4 * batch * heads * rows, "statistics");
  const deltas = made(4 * batch * heads * rows, "deltas");
  const both = {
    ...{ dtype: "f32" as const, resultDtype: "bf16" as const, batch, heads, keyHeads: heads },
    ...{ rows, columns: rows, width, valueWidth: width, scale: 1 / Math.sqrt(width), isCausal },
    ...{
      query: operand("query"),
      key: operand("key"),
      value: operand("value"),
      out: operand("out"),
      statistics,
    },
  };
  const forward: ForwardProblem = both;
  const backward: BackwardProblem = {
    ...{ ...both, deltas, outGradient: operand("outGradient") },
    ...{ queryGradient: operand("dq"), keyGradient: operand("dk"), valueGradient: operand("dv") },
  };
  return {
    forward: microsecondsOf(runtime, attentionCalls(forward)),
    backward: microsecondsOf(runtime, attentionBackwardCalls(backward)),
  };
}

type PeerLine = Shape & Partial<Times> & { readonly backend: string; readonly failure?: string };

/** The peer's times by shape and backend; none if python3 or PyTorch is missing. */
function runPeer(results: Results): readonly PeerLine[] {
  const script = join(repositoryRoot, "bench/gpu/attention_peer.py");
  const { stdout, stderr, status } = spawnSync("python3", [script, JSON.stringify(shapes)], {
    ...{ encoding: "utf8", timeout: 120_000 },
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
  });
  if (status !== 0) results.line(`no peer: ${(stderr ?? "").trim().split("\n").at(-1)}`);
  return (stdout ?? "")
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as PeerLine);
}

const results = new Results("attention", options);
const { device, close } = openGpu(options, {
  device: { memory: options.emulator ? "512MiB" : "6GiB", precision: "bf16" },
});
const peer = runPeer(results);
const table = [["batch × heads × rows × width", "", "µs", "TFLOP/s", "peer µs", "backend", "rate / peer's"]];
let lowest = Number.POSITIVE_INFINITY;
for (const shape of shapes) {
  const { batch, heads, rows, width, isCausal } = shape;
  results.line(`${batch} × ${heads} × ${rows} × ${width}${isCausal ? ", causal" : ""}`);
  const times = device.step(() => measure(device.runtime, shape));
  const products = (2 * batch * heads * rows * rows * width) / (isCausal ? 2 : 1);
  for (const pass of ["forward", "backward"] as const) {
    const flops = products * (pass === "forward" ? 2 : 5);
    const fastest = peer
      .filter(
        (line) =>
          line[pass] !== undefined &&
          line.rows === rows &&
          line.width === width &&
          line.isCausal === isCausal,
      )
      .sort((one, other) => one[pass]! - other[pass]!)[0];
    const share = fastest && fastest[pass]! / times[pass];
    if (share !== undefined) lowest = Math.min(lowest, share);
    table.push([
      `${batch} × ${heads} × ${rows} × ${width}${isCausal ? ", causal" : ""}`,
      pass,
      times[pass].toFixed(1),
      (flops / times[pass] / 1e6).toFixed(0),
      fastest?.[pass]?.toFixed(1) ?? "–",
      fastest?.backend ?? "–",
      share?.toFixed(2) ?? "–",
    ]);
  }
}
results.table(table);
for (const { failure, backend, rows, width } of peer.filter((line) => line.failure))
  results.line(`peer's ${backend}, ${rows} × ${width}: ${failure}`);
if (Number.isFinite(lowest))
  results.aim(
    lowest >= minShare,
    `the lowest rate is ${lowest.toFixed(2)} of the peer's; target ${minShare}`,
  );
close();
results.finish();
