/** Holdfast's CrossAsset training step and GEMM. HOLDFAST_BLAS, if set, names the BLAS library. */

import "../source-modules.js";
import { crossasset, Device, nn, optim, type Tensor } from "holdfast";
import { type GemmProblem, gemmCalls, gemmScratchBytes, submit } from "../../src/kernels/index.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { report } from "./report.js";
import { B, batch, batchCount, C, D, F, gemmSize, S, threads, values, weights } from "./workload.js";

const cpu = new Device("cpu", { threads, stallAfter: "off", print: () => {} });
const { runtime } = cpu;

/** Holdfast's names of a layer's weights, mapped to the workload's. */
const layerNames: Readonly<Record<string, string>> = {
  q: "wq",
  k: "wk",
  v: "wv",
  o: "wo",
  "norm1.weight": "g1",
  "norm1.bias": "s1",
  "ffn1.weight": "w1",
  "ffn1.bias": "b1",
  "ffn2.weight": "w2",
  "ffn2.bias": "b2",
  "norm2.weight": "g2",
  "norm2.bias": "s2",
};

/**
 * The workload's values for a parameter of the model. The weights of single sources are slices of the stacked
 * ones.
 */
function valuesFor(path: string, values: ReadonlyMap<string, Float32Array>): Float32Array {
  const find = (name: string): Float32Array => values.get(name)!;
  const [section, index, ...rest] = path.split(".");
  if (section === "head") return find(index === "weight" ? "wout" : "bout");
  if (section === "layers") return find(`${index}.${layerNames[rest.join(".")]}`);
  const [name, size] = rest[0] === "weight" ? (["win", F * D] as const) : (["bin", D] as const);
  return find(name).subarray(Number(index) * size, (Number(index) + 1) * size);
}

/** Arena bytes of the batches, which are not part of a step. */
let keptBytes = 0;

/** True if the step is compiled, not eager. */
const isCompiled = process.argv.includes("--compiled");

function prepareStep(): (batchIndex: number) => number {
  const values = new Map(weights().map(({ name, data }) => [name, data]));
  const model = new crossasset.CrossAsset().to(cpu);
  for (const [path, parameter] of model.namedParameters()) cpu.write(parameter, valuesFor(path, values));
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3 });
  const batches = Array.from({ length: batchCount }, (_, index): [x: Tensor, y: Tensor] => {
    const { x, labels } = batch(index);
    return [cpu.fromHost(x, [B, S, F], "f32"), cpu.fromHost(labels, [B * S], "i32")];
  });
  keptBytes = runtime.arena.figures.live;
  const train = (x: Tensor, y: Tensor): { readonly loss: Tensor } => {
    const loss = nn.functional.crossEntropy(model.forward(x).reshape([B * S, C]), y);
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
  if (isCompiled) {
    const step = cpu.compile(train);
    return (batchIndex) => step(...batches[batchIndex]!).loss.item();
  }
  return (batchIndex) => cpu.step(() => train(...batches[batchIndex]!).loss.item());
}

function prepareGemm(): () => void {
  const { m, n, k } = gemmSize;
  const entries = Object.entries({ a: m * k, b: k * n, c: m * n });
  const placements = entries.map(([name, elements]) => ({ name, size: elements * 4 }));
  const [a, b, c] = runtime.persistent.place("data set", "gemm", placements).storages;
  runtime.upload([
    { source: values(1, [m, k]), target: a! },
    { source: values(2, [k, n]), target: b! },
  ]);
  const problem: GemmProblem = {
    dtype: "f32",
    m,
    n,
    k,
    a: { storage: a!, rowStride: k },
    b: { storage: b!, rowStride: n },
    c: { storage: c!, rowStride: n },
  };
  const scratchBytes = gemmScratchBytes(runtime, problem);
  return () =>
    runtime.step(() => {
      const scratch = scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "gemm") };
      submit(runtime, gemmCalls({ ...problem, ...scratch }));
      runtime.synchronize();
    });
}

await report({
  peer: `Holdfast${isCompiled ? " compiled" : ""}${runtime.blas ? " with HOLDFAST_BLAS" : ""}`,
  version: (JSON.parse(readRepositoryFile("package.json")) as { version: string }).version,
  step: prepareStep(),
  stepBytes: () => runtime.arena.figures.highWater - keptBytes,
  prepareGemm,
});
cpu.close();
