/**
 * Where products leave half floats (`narrow`), a library can't add a bias of f32 to them. Then the bias is work of its own, on the
 * product's result: row kernels that read the result take it along once they are fused. What our own kernels make keeps its bias.
 */

import { gemmFinishes, gemmIsOwn, iterateElements, type RowKernel, term } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { outlineOf } from "../product-times.js";
import type { Call, Part, ProductCall } from "../program.js";
import { bufferMaker, type Uses, usesOf } from "../uses.js";

const addBias: RowKernel = {
  ...{ name: "bias", inputs: ["f32", "f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: term.add(term.load(0, "f32"), term.load(1, "f32")) }],
};

/** What a product would be finished with, whatever that is. */
const anyFinish = { kernel: addBias, product: 0, keepsResult: true };

export function takeBiasesApart(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (runtime.device.kind !== "cuda" || runtime.settings.precision !== "bf16") return calls;
  const uses = usesOf(calls);
  const makeBuffer = bufferMaker(calls);
  return calls.flatMap((call) => {
    if (call.work.kind !== "product") return [call];
    const { bias, ...problem } = call.work.problem;
    if (!bias || !isLibrarys(runtime, call.work.problem) || !isReadByRows(calls, uses, problem))
      return [call];
    const { m, n, c } = problem;
    const buffer = makeBuffer(c.part.size, c.part.buffer.label);
    const part: Part = { buffer, offset: 0, size: c.part.size };
    const iteration = iterateElements(
      [m, n],
      [
        [n, 1],
        [0, 1],
        [n, 1],
      ],
    );
    const operands = [part, bias, c.part];
    return [
      { ...call, work: { kind: "product", problem: { ...problem, c: { ...c, part } } } },
      { ...call, work: { kind: "rows", kernel: addBias, iteration, operands, scalars: [] } },
    ];
  });
}

/** Is it a product of bf16 that a library makes, whatever stands behind it? */
function isLibrarys(runtime: Runtime, problem: ProductCall["problem"]): boolean {
  const { dtype, resultDtype = dtype, batch = 1, n, c, beta = 0, activation, a } = problem;
  if (dtype !== "bf16" || resultDtype !== "f32" || batch !== 1 || beta !== 0 || activation) return false;
  if (a.isTransposed || c.rowStride !== n) return false;
  const outline = outlineOf(problem);
  return !gemmIsOwn(runtime, outline) && !gemmFinishes(runtime, outline, anyFinish);
}

/** Do only row kernels read the result, over its own rows, so that they can take the bias along? */
function isReadByRows(
  calls: readonly Call[],
  uses: ReadonlyMap<Part["buffer"], Uses>,
  { m, n, c }: Pick<ProductCall["problem"], "m" | "n" | "c">,
): boolean {
  const { buffer, offset, size } = c.part;
  const { writers = [], readers = [] } = uses.get(buffer) ?? {};
  if (buffer.storage || offset !== 0 || size !== buffer.bytes || writers.length !== 1) return false;
  return (
    readers.length > 0 &&
    readers.every((place) => {
      const work = calls[place]?.work;
      return work?.kind === "rows" && work.iteration.elements === m * n;
    })
  );
}
