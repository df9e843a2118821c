/** What becomes of known patterns of calls, and which calls stay apart. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../test/support/effort.js";
import { onCalls } from "../../../../test/support/rewritten.js";
import {
  bufferOf,
  contiguous,
  elementwise,
  layerNorm,
  load,
  reducing,
  storing,
  transposed,
  type View,
} from "../../../../test/support/row-calls.js";
import type { Kernel } from "../../../driver/index.js";
import { term } from "../../../ir/index.js";
import type { Runtime } from "../../../runtime/index.js";
import type { Buffer, Call, RowCall } from "../../program/program.js";
import { describeFusions, fuse as fuseIn } from "./fuse.js";
import { fusionNodeOf } from "./fusion-node.js";
import { iterationSpaceOf } from "./iteration-space.js";

const fuse = onCalls(fuseIn);

/** All that fusion asks of a runtime. */
const on = (kind: "cpu" | "cuda"): Runtime => ({ device: { kind } }) as unknown as Runtime;

const [N, D] = [256, 64] as const;

/** Fuses calls of which some buffers are read afterwards. */
function fuseKeeping(kept: readonly View[], ...calls: readonly Call[]): readonly Call[] {
  const buffers = new Set<Buffer>(kept.map(({ slice }) => slice.buffer));
  return fuse(on("cpu"), calls, { isRead: (buffer) => buffers.has(buffer) });
}

function rowsOf(call: Call | undefined): RowCall {
  assert.equal(call?.work.kind, "row");
  return call!.work as RowCall;
}

/** The buffers that a row call reads and writes, by label. */
function endsOf(call: Call | undefined): { reads: string[]; writes: string[] } {
  const { kernel, operands } = rowsOf(call);
  const labels = operands.map(({ buffer }) => buffer.label);
  return { reads: labels.slice(0, kernel.inputs.length), writes: labels.slice(kernel.inputs.length) };
}

const whole = (label: string, options = {}): View => bufferOf([N, D], { label, ...options });
const perRow = (label: string): View => bufferOf([N], { label });

describe("becomes one call:", () => {
  test("a chain of elementwise ops, whose values in between are in memory no more", () => {
    const [x, a, b, c, y] = ["x", "a", "b", "c", "y"].map((label) => whole(label)) as [
      View,
      View,
      View,
      View,
      View,
    ];
    const fused = fuseKeeping(
      [y],
      elementwise("mul", (x) => term.mul(x, 0.7), [x], a),
      elementwise("erf", term.erf, [a], b),
      elementwise("add", (b) => term.add(b, 1), [b], c),
      elementwise("mul", term.mul, [x, c], y),
    );
    assert.equal(fused.length, 1);
    assert.deepEqual(endsOf(fused[0]), { reads: ["x"], writes: ["y"] });
    assert.equal(fused[0]?.op, "mul + erf + add + mul");
  });

  test("a sum and the norm of its rows; the sum stays where others read it", () => {
    const [x, r, sum, y] = ["x", "r", "sum", "y"].map((label) => whole(label)) as [View, View, View, View];
    const [mean, spread] = [perRow("mean"), perRow("spread")];
    const calls = [elementwise("add", term.add, [x, r], sum), layerNorm(sum, y, mean, spread)];
    const kept = fuseKeeping([sum, y, mean, spread], ...calls);
    assert.deepEqual(kept.map(endsOf), [{ reads: ["x", "r"], writes: ["sum", "y", "mean", "spread"] }]);
    const alone = fuseKeeping([y], ...calls);
    assert.deepEqual(alone.map(endsOf), [{ reads: ["x", "r"], writes: ["y"] }]);
  });

  test("a gradient of rows and the add behind it, though what is added is made between them", () => {
    const [up, x, gradient, other, sum] = ["up", "x", "gradient", "other", "sum"].map((label) =>
      whole(label),
    ) as [View, View, View, View, View];
    const fused = fuseKeeping(
      [sum],
      reducing(
        "gradient",
        [["add", term.mul]],
        [(up, x) => term.mul(x, term.sub(up, term.reduced(0, "f32")))],
        [up, x],
        [gradient],
      ),
      { op: "other", work: { kind: "fill", target: other.slice, byte: 0 } },
      elementwise("add", term.add, [gradient, other], sum),
    );
    assert.deepEqual(
      fused.map(({ op }) => op),
      ["other", "gradient + add"],
    );
    assert.deepEqual(endsOf(fused[1]), { reads: ["up", "x", "other"], writes: ["sum"] });
  });

  test("a softmax in five ops: what is costly is stored once and loaded back, values of rows are passed on", () => {
    const [x, shifted, raised, y] = ["x", "shifted", "raised", "y"].map((label) => whole(label)) as [
      View,
      View,
      View,
      View,
    ];
    const [largest, sum] = [perRow("largest"), perRow("sum")];
    const seen = (row: View): View => ({ ...row, shape: [N, D], strides: [1, 0] });
    const fused = fuseKeeping(
      [y],
      reducing("max", [["max", (x) => x]], [() => term.reduced(0, "f32")], [x], [largest]),
      elementwise("sub", term.sub, [x, seen(largest)], shifted),
      elementwise("exp", term.exp, [shifted], raised),
      reducing("sum", [["add", (x) => x]], [() => term.reduced(0, "f32")], [raised], [sum]),
      elementwise("div", term.div, [raised, seen(sum)], y),
    );
    assert.deepEqual(fused.map(endsOf), [{ reads: ["x", "raised"], writes: ["raised", "y"] }]);
  });

  test("elementwise ops on the values of rows, before and behind the rows' own kernel", () => {
    const [x, y] = [whole("x"), whole("y")];
    const [scale, half, sum, root] = ["scale", "half", "sum", "root"].map(perRow) as [View, View, View, View];
    const seen = (row: View): View => ({ ...row, shape: [N, D], strides: [1, 0] });
    const fused = fuseKeeping(
      [y],
      elementwise("half", (x) => term.mul(x, 0.5), [scale], half),
      reducing("sum", [["add", term.mul]], [() => term.reduced(0, "f32")], [x, seen(half)], [sum]),
      elementwise("rsqrt", term.rsqrt, [sum], root),
      elementwise("mul", term.mul, [x, seen(root)], y),
    );
    assert.deepEqual(fused.map(endsOf), [{ reads: ["x", "scale"], writes: ["y"] }]);
  });

  test("calls that read the same memory, with one reading of it", () => {
    const [x, a, b] = ["x", "a", "b"].map((label) => whole(label)) as [View, View, View];
    const fused = fuseKeeping(
      [a, b],
      elementwise("exp", term.exp, [x], a),
      elementwise("tanh", term.tanh, [x], b),
    );
    assert.deepEqual(fused.map(endsOf), [{ reads: ["x"], writes: ["a", "b"] }]);
  });

  test("a value and its cast, which is a second store; what is rounded is read back as it was stored", () => {
    const [x, a, y] = [whole("x"), whole("a"), whole("y")];
    const half = whole("half", { dtype: "bf16" });
    const fused = fuseKeeping(
      [a, half, y],
      elementwise("tanh", term.tanh, [x], a),
      elementwise("cast", (a) => a, [a], half),
      elementwise("neg", term.neg, [half], y),
    );
    assert.deepEqual(fused.map(endsOf), [{ reads: ["x", "a", "half"], writes: ["a", "half", "y"] }]);
    const { stages } = rowsOf(fused[0]).kernel;
    assert.deepEqual(stages[2]?.value, term.neg(term.load(2, "f32")));
  });

  test("a chain of half floats, whose values in between are rounded as stores would round them, and not stored", () => {
    for (const dtype of ["bf16", "f16"] as const) {
      const round = dtype === "bf16" ? term.roundBf16 : term.roundF16;
      const [x, a, b, y] = ["x", "a", "b", "y"].map((label) => whole(label, { dtype })) as [
        View,
        View,
        View,
        View,
      ];
      const fused = fuseKeeping(
        [y],
        elementwise("mul", (x) => term.mul(x, 0.7), [x], a),
        elementwise("cast", (a) => a, [a], b),
        elementwise("tanh", term.tanh, [b], y),
      );
      assert.deepEqual(fused.map(endsOf), [{ reads: ["x"], writes: ["y"] }]);
      const [stage] = rowsOf(fused[0]).kernel.stages;
      assert.deepEqual(stage?.value, term.tanh(round(term.mul(load(x, 0), 0.7))));
    }
  });

  test("on a GPU, a costly value that several stages use, and that is not stored; on a CPU each stage is a loop", () => {
    const [x, y, z] = [whole("x"), whole("y"), whole("z")];
    const root = whole("root", { dtype: "bf16" });
    const calls = [
      elementwise("exp", term.exp, [x], root),
      elementwise("neg", term.neg, [root], y),
      elementwise("mul", term.mul, [root, x], z),
    ];
    const isRead = ({ label }: Buffer): boolean => label === "y" || label === "z";
    const [first, ...others] = fuse(on("cuda"), calls, { isRead });
    assert.equal(others.length, 0);
    assert.deepEqual(endsOf(first), { reads: ["x"], writes: ["y", "z"] });
    const [onCpu] = fuse(on("cpu"), calls, { isRead });
    assert.deepEqual(endsOf(onCpu).writes, ["root", "y", "z"]);
  });

  test("a sum in place and its reader: the sum is not stored if nothing reads it later", () => {
    const [x, y, z] = [whole("x"), whole("y"), whole("z")];
    const total = whole("total");
    const calls = [
      elementwise("neg", term.neg, [x], total),
      elementwise("turn", (total) => total, [transposed(total)], {
        ...z,
        shape: [D, N],
        strides: contiguous([D, N]),
      }),
      elementwise("add", term.add, [total, x], total),
      elementwise("mul", (total) => term.mul(total, 2), [total], y),
    ];
    const added = fuseKeeping([y, z], ...calls).at(-1);
    assert.deepEqual(endsOf(added), { reads: ["total", "x"], writes: ["y"] });
    const again = elementwise("again", (total) => total, [transposed(total)], {
      ...whole("w"),
      shape: [D, N],
      strides: contiguous([D, N]),
    });
    const stored = fuseKeeping([y, z], ...calls, again).find(({ op }) => op.includes("add"));
    assert.deepEqual(endsOf(stored).writes, ["total", "y"]);
  });

  test("a value and its plain copy, but not one of half floats, whose bits would not survive", () => {
    const copyOf = (dtype: "f32" | "bf16"): readonly Call[] => {
      const [x, y, persistent] = [
        whole("x", { dtype }),
        whole("y", { dtype }),
        whole("copy", { dtype, address: 4096 }),
      ];
      return fuseKeeping([y], elementwise("neg", term.neg, [x], y), {
        op: "copy",
        work: { kind: "copy", target: persistent.slice, source: y.slice },
      });
    };
    assert.deepEqual(copyOf("f32").map(endsOf), [{ reads: ["x", "y"], writes: ["y", "copy"] }]);
    assert.equal(copyOf("bf16").length, 2);
  });

  test("a truth value and what chooses by it; a byte is passed on as its low bits", () => {
    const [x, y] = [whole("x"), whole("y")];
    const [mask, byte] = [whole("mask", { dtype: "bool" }), whole("byte", { dtype: "u8" })];
    const [masked] = fuseKeeping(
      [y],
      elementwise("gt", (x) => term.gt(x, 0), [x], mask),
      elementwise("where", (mask, x) => term.select(mask, x, 0), [mask, x], y),
    );
    const x0 = term.load(0, "f32");
    assert.deepEqual(rowsOf(masked).kernel.stages[0]?.value, term.select(term.gt(x0, 0), x0, 0));
    const [low] = fuseKeeping(
      [y],
      elementwise("u8", (x) => term.convert(x, "i32"), [x], byte),
      elementwise("f32", (byte) => term.convert(byte, "f32"), [byte], y),
    );
    const { value } = rowsOf(low).kernel.stages[0]!;
    assert.deepEqual(value, term.convert(term.and(term.convert(x0, "i32"), 255), "f32"));
  });

  test("calls of one row, whatever they are about: a norm's end, and the counts of an optimizer's groups", () => {
    const [slices, norm] = [bufferOf([1, 531], { label: "slices" }), bufferOf([1], { label: "norm" })];
    const counts = ["t", "u"].map((label, index) => bufferOf([1], { label, address: 4096 + 256 * index }));
    const [t, u] = counts as [View, View];
    const count = (view: View): Call => elementwise("count", (x) => term.add(x, 1), [view], view);
    const finish = reducing("norm", [["add", (x) => x]], [() => term.reduced(0, "f32")], [slices], [norm]);
    const fused = fuseKeeping([norm], finish, count(t), count(u));
    assert.deepEqual(fused.map(endsOf), [{ reads: ["slices", "t", "u"], writes: ["norm", "t", "u"] }]);
    assert.deepEqual(fuseKeeping([norm], count(t), finish, count(u)).map(endsOf), [
      { reads: ["t", "slices", "u"], writes: ["t", "norm", "u"] },
    ]);
  });

  test("a ring that takes a number at the count's place, and the count", () => {
    const [ring, next] = [
      bufferOf([1, 256], { label: "ring", address: 8192 }),
      bufferOf([1], { label: "count", dtype: "i32", address: 4096 }),
    ];
    const isPlace = term.eq(term.position, term.and(term.load(1, "i32"), 255));
    const put = reducing("ring", [], [(old) => term.select(isPlace, 1, old)], [ring, next], [ring]);
    const fused = fuseKeeping(
      [],
      put,
      elementwise("count", (n) => term.add(n, 1), [next], next),
    );
    assert.deepEqual(fused.map(endsOf), [{ reads: ["ring", "count"], writes: ["ring", "count"] }]);
  });

  test("iterations of other axes over the same elements", () => {
    const [x, y, z] = [bufferOf([4, 6, 8]), bufferOf([4, 6, 8]), bufferOf([24, 8])];
    const bias = bufferOf([6, 8]);
    const fused = fuseKeeping(
      [z],
      elementwise("add", term.add, [x, bias], y),
      elementwise("neg", term.neg, [{ ...y, shape: [24, 8], strides: [8, 1] }], z),
    );
    assert.equal(fused.length, 1);
    assert.equal(rowsOf(fused[0]).iteration.elements, 192);
  });
});

/** A few columns of a matrix, each a view of its own. */
function columnsOf(rows: number, count: number): View[] {
  const matrix = bufferOf([rows, count], { label: "matrix" });
  return Array.from({ length: count }, (_, column) => ({
    ...matrix,
    ...{ shape: [rows], strides: [count] },
    slice: { ...matrix.slice, offset: 4 * column, size: 4 * (count * (rows - 1) + 1) },
  }));
}

describe("values of a few classes", () => {
  /** Three sums for each row of `x`, with the columns of a weight, into the columns of the logits. */
  const narrow = (x: View, weights: readonly View[], logits: readonly View[]): Call =>
    reducing(
      "linear",
      weights.map((_, index) => ["add", (...loads) => term.mul(loads[0]!, loads[1 + index]!)]),
      logits.map((_, index) => () => term.reduced(index, "f32")),
      [x, ...weights],
      logits,
    );

  test("are one call with the rows that they are made of, on a GPU: elsewhere sums go by what stands beside them", () => {
    const [x, y] = [whole("x"), whole("y")];
    const [weights, logits] = [columnsOf(D, 3), columnsOf(N, 3)];
    const loss = perRow("loss");
    const calls = [
      reducing("centre", [["add", (x) => x]], [(x) => term.sub(x, term.reduced(0, "f32"))], [x], [y]),
      narrow(y, weights, logits),
      elementwise("loss", (a, b, c) => term.exp(term.max(term.max(a, b), c)), logits, loss),
    ];
    const [fused, ...others] = fuse(on("cuda"), calls, { isRead: ({ label }) => label === "loss" });
    assert.equal(others.length, 0);
    assert.deepEqual(endsOf(fused), { reads: ["x", "matrix", "matrix", "matrix"], writes: ["loss"] });
    const apart = fuse(on("cpu"), calls, { isRead: ({ label }) => label === "loss" });
    assert.deepEqual(
      apart.map(({ op }) => op),
      ["centre", "linear + loss"],
    );
  });

  test("are not one call with others where their columns meet", () => {
    const [x, weights] = [whole("x"), columnsOf(D, 2)];
    const [first, second] = columnsOf(N, 3) as [View, View];
    const meeting: View = { ...first, slice: { ...first.slice, offset: 12 } };
    const loss = perRow("loss");
    for (const [other, count] of [
      [second, 1],
      [meeting, 2],
    ] as const) {
      const calls = [narrow(x, weights, [first, other]), elementwise("exp", term.exp, [first], loss)];
      assert.equal(fuse(on("cuda"), calls, { isRead: () => true }).length, count);
    }
  });

  test("wait for a reduction to be one with: without it they would be made for each element", () => {
    const [x, y, kept] = [whole("x"), whole("y"), whole("kept")];
    const [z, share, sum] = [perRow("z"), perRow("share"), perRow("sum")];
    const costly = elementwise("exp", term.exp, [z], share);
    const along: View = { ...share, shape: [N, 1], strides: [1, 0] };
    const spread = elementwise("mul", term.mul, [x, along], y);
    assert.equal(fuseKeeping([y], costly, spread).length, 2);
    const reduced = reducing(
      "less its sum",
      [["add", (y) => y]],
      [(y) => term.sub(y, term.reduced(0, "f32")), () => term.reduced(0, "f32")],
      [y],
      [kept, sum],
    );
    const [fused, ...others] = fuseKeeping([y, kept, sum], costly, spread, reduced);
    assert.equal(others.length, 0);
    // What changes along the row is little, and so made again rather than read back.
    assert.deepEqual(endsOf(fused), { reads: ["x", "z"], writes: ["y", "kept", "sum"] });
  });
});

describe("stay apart:", () => {
  test("large elementwise calls of which one would have a value for each few elements of the other", () => {
    const halved = (label: string, elements: number): Call => {
      const shape = [elements];
      const [from, to] = [bufferOf(shape, { label: `${label}0` }), bufferOf(shape, { label })];
      return elementwise(label, (x) => term.mul(x, 0.5), [from], to);
    };
    const rowSizeOf = (...elements: readonly number[]): number | undefined =>
      iterationSpaceOf(elements.map((count, call) => fusionNodeOf(halved(`call${call}`, count))!))?.rowSize;
    const many = 2 ** 21;
    assert.deepEqual([rowSizeOf(many, many / 2), rowSizeOf(many, many / 32)], [undefined, 32]);
    assert.equal(rowSizeOf(many / 2, many / 4), 2, "a launch would take longer");
  });

  const [x, a, y] = [whole("x"), whole("a"), whole("y")];

  const staysApart = (kept: readonly View[], ...calls: readonly Call[]): void => {
    assert.deepEqual(
      fuseKeeping(kept, ...calls).map(({ op }) => op),
      calls.map(({ op }) => op),
    );
  };

  test("a value and a reader of it in another order", () => {
    const turned = bufferOf([D, N]);
    staysApart(
      [turned],
      elementwise("exp", term.exp, [x], a),
      elementwise("turn", (a) => a, [transposed(a)], turned),
    );
  });

  test("a value and a reader of it at an index", () => {
    const index = bufferOf([N, D], { dtype: "i32" });
    const picked = storing("pick", [() => term.load(0, "f32", term.load(1, "i32"))], [a, index], [y]);
    staysApart([y], elementwise("exp", term.exp, [x], a), picked);
  });

  test("calls between which memory changes that one of them reads", () => {
    staysApart(
      [a, y],
      elementwise("exp", term.exp, [x], a),
      { op: "clear", work: { kind: "fill", target: x.slice, byte: 0 } },
      elementwise("add", term.add, [a, x], y),
    );
  });

  test("calls between which one's result is changed, also under another name", () => {
    const [persistent, same] = [whole("p", { address: 4096 }), whole("q", { address: 4096 })];
    for (const between of [persistent, same]) {
      staysApart(
        [y],
        elementwise("exp", term.exp, [x], persistent),
        { op: "clear", work: { kind: "fill", target: between.slice, byte: 0 } },
        elementwise("neg", term.neg, [persistent], y),
      );
    }
  });

  test("rows of two lengths, and elements that no row of a length holds", () => {
    const sum = (op: string, x: View, to: View): Call =>
      reducing(op, [["add", (x) => x]], [() => term.reduced(0, "f32")], [x], [to]);
    const folded: View = { ...x, shape: [N / 2, 2 * D], strides: [2 * D, 1] };
    const [one, other] = [perRow("one"), bufferOf([N / 2])];
    staysApart([one, other], sum("by 64", x, one), sum("by 128", folded, other));
    const [odd, oddSum] = [bufferOf([6, 10]), bufferOf([4, 15])];
    const bias = bufferOf([15]);
    const asFour: View = { ...odd, shape: [4, 15], strides: [15, 1] };
    staysApart(
      [oddSum],
      elementwise("add", term.add, [bufferOf([6, 10]), bufferOf([10])], odd),
      elementwise("bias", term.add, [asFour, bias], oddSum),
    );
  });

  test("a sum and a value whose steps would have it added up in another order", () => {
    const turned: View = transposed(bufferOf([D, N]));
    const sum = perRow("sum");
    staysApart(
      [sum],
      elementwise("copy", (x) => x, [turned], a),
      reducing("sum", [["add", (x) => x]], [() => term.reduced(0, "f32")], [a], [sum]),
    );
  });

  test("calls of which one stores an element twice", () => {
    const once: View = { ...bufferOf([D]), shape: [N, D], strides: [0, 1] };
    staysApart([once, y], elementwise("exp", term.exp, [x], once), elementwise("tanh", term.tanh, [x], y));
  });

  test("a call that reads a row's value behind its own store, which it sees or not by the length of rows", () => {
    const sum = perRow("sum");
    const odd = reducing(
      "odd",
      [["add", (a) => a]],
      [() => term.reduced(0, "f32"), (a, sum) => term.add(a, sum)],
      [a, sum],
      [sum, y],
    );
    staysApart([sum, y], elementwise("exp", term.exp, [x], a), odd);
  });

  test("many elements and a reduction of few rows, which a GPU has few threads for", () => {
    const [long, value, sum] = [bufferOf([4, 8192]), bufferOf([4, 8192]), bufferOf([4])];
    staysApart(
      [sum],
      elementwise("exp", term.exp, [long], value),
      reducing("sum", [["add", (x) => x]], [() => term.reduced(0, "f32")], [value], [sum]),
    );
  });

  test("functions of rows with more elements than a block takes at a time, where rows are few", () => {
    for (const [rows, size, count] of [
      [1, 1024, 1],
      [1, 1028, 2],
      [8, 1028, 2],
      [64, 256, 1],
    ] as const) {
      const [long, value, sum] = [bufferOf([rows, size]), bufferOf([rows, size]), bufferOf([rows])];
      const fused = fuseKeeping(
        [sum],
        elementwise("exp", term.exp, [long], value),
        reducing("sum", [["add", (x) => x]], [() => term.reduced(0, "f32")], [value], [sum]),
      );
      assert.equal(fused.length, count, `${rows} × ${size} elements`);
    }
  });

  test("calls of one row that something has to run between, or with rows of two lengths", () => {
    const [t, made] = [bufferOf([1], { label: "t", address: 4096 }), bufferOf([1], { label: "made" })];
    const [first, last] = [bufferOf([1], { label: "first" }), bufferOf([1], { label: "last" })];
    staysApart(
      [first, last],
      elementwise("count", (x) => term.add(x, 1), [t], first),
      { op: "clear", work: { kind: "fill", target: t.slice, byte: 0 } },
      elementwise("neg", term.neg, [t], last),
    );
    const sumOf = (x: View, to: View): Call =>
      reducing("sum", [["add", (x) => x]], [() => term.reduced(0, "f32")], [x], [to]);
    staysApart([made, last], sumOf(bufferOf([1, 256]), made), sumOf(bufferOf([1, 300]), last));
  });

  test("one element and a row of many that need no row", () => {
    const [one, many] = [bufferOf([1], { address: 4096 }), bufferOf([300], { address: 8192 })];
    const add = (view: View): Call => elementwise("add", (x) => term.add(x, 1), [view], view);
    staysApart([], add(many), add(one));
  });

  test("more operands than a kernel may have", () => {
    const slices = Array.from({ length: 40 }, () => whole("partial-out"));
    const calls = slices
      .slice(1)
      .map((slice, index) => elementwise("add", term.add, [a, slice], index < 38 ? a : y));
    const fused = fuseKeeping([y], ...calls);
    assert.ok(fused.length > 1 && fused.length < 5, `${fused.length} calls`);
    for (const call of fused) assert.ok(rowsOf(call).operands.length <= 16);
  });
});

test("a value is not computed anew from what has been stored over by then", () => {
  const [x, b, y] = [whole("x"), whole("b"), whole("y")];
  const fused = fuseKeeping(
    [x, y],
    elementwise("add", (x) => term.add(x, 1), [x], b),
    elementwise("double", (b) => term.mul(b, 2), [b], x),
    elementwise("third", (b) => term.add(b, 3), [b], y),
  );
  assert.equal(fused.length, 1);
  const { stages, inputs } = rowsOf(fused[0]).kernel;
  const [, double, third] = stages;
  const b1 = load(b, inputs.length - 1);
  assert.deepEqual([double?.value, third?.value], [term.mul(b1, 2), term.add(b1, 3)]);
});

test("what a call reads of its own is no reading by others, and takes none of theirs away", () => {
  const [x, a, b, y] = [whole("x"), whole("a"), whole("b"), whole("y")];
  const own = storing("own", [(x) => term.exp(x), (_, a) => term.neg(a)], [x, a], [a, b]);
  const turned = elementwise("turn", (a) => a, [transposed(a)], { ...y, shape: [D, N], strides: [N, 1] });
  const [first] = fuseKeeping([b, y], own, turned);
  assert.deepEqual(endsOf(first).writes, ["a", "b"]);
});

test("outputs that nobody reads are left out of a lone call too", () => {
  const [x, y] = [whole("x"), whole("y")];
  const [call] = fuseKeeping([y], layerNorm(x, y, perRow("mean"), perRow("spread")));
  assert.deepEqual(endsOf(call), { reads: ["x"], writes: ["y"] });
});

test("the same fusion of the same kernels is the same kernel, whatever the buffers", () => {
  const fused = [1, 2].map(() => {
    const [x, a, y] = [whole("x"), whole("a"), whole("y")];
    const calls = [elementwise("exp", term.exp, [x], a), elementwise("neg", term.neg, [a], y)];
    return rowsOf(fuseKeeping([y], ...calls)[0]).kernel;
  });
  assert.equal(fused[0], fused[1]);
});

test("what became one is told, with the memory that is needed no more", () => {
  const [x, a, y] = [whole("x"), whole("a"), whole("y")];
  const calls = [elementwise("exp", term.exp, [x], a), elementwise("neg", term.neg, [a], y)];
  assert.deepEqual(describeFusions(fuseKeeping([y], ...calls)), [
    { kernel: "exp + neg", ops: ["exp", "neg"], gone: [a.slice.buffer] },
  ]);
});

test("a program of many calls is fused part by part, and no value is lost", () => {
  const layers = effort({ quick: 150, thorough: 1000 });
  const product = { name: "product", parameters: ["in", "out"] } as unknown as Kernel;
  let x = whole("x");
  const calls: Call[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const [made, sum, y] = [whole("made"), whole("sum"), whole("y")];
    calls.push(
      { op: "gemm", work: { kind: "launch", kernel: product, blocks: 1, arguments: [x.slice, made.slice] } },
      elementwise("add", term.add, [x, made], sum),
      layerNorm(sum, y, perRow("mean"), perRow("spread")),
      elementwise("tanh", term.tanh, [y], y),
    );
    x = y;
  }
  const fused = fuseKeeping([x], ...calls);
  assert.equal(fused.length, 2 * layers);
});
