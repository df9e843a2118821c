/** LSTM, GRU and RNN with one direction. */

import assert from "node:assert/strict";
import {
  elementAt,
  floats,
  generate,
  type Operator,
  type OperatorCall,
  type PlainArray,
  requireDtypes,
} from "./arrays.js";

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

interface States {
  readonly h: readonly number[];
  readonly c: readonly number[];
}

/** `x`, `h`: the projections of gate `g` for unit `u`, biases included. */
type Step = (
  x: (g: number, u: number) => number,
  h: (g: number, u: number) => number,
  u: number,
  old: States,
) => {
  readonly h: number;
  readonly c: number;
};

const steps: Readonly<Record<string, Step>> = {
  LSTM: (x, h, u, old) => {
    const gate = (g: number): number => x(g, u) + h(g, u);
    const c = sigmoid(gate(2)) * old.c[u]! + sigmoid(gate(0)) * Math.tanh(gate(3));
    return { c, h: sigmoid(gate(1)) * Math.tanh(c) };
  },
  GRU: (x, h, u, old) => {
    const [z, r] = [sigmoid(x(0, u) + h(0, u)), sigmoid(x(1, u) + h(1, u))];
    const n = Math.tanh(x(2, u) + r * h(2, u));
    return { c: 0, h: (1 - z) * n + z * old.h[u]! };
  },
  Tanh: (x, h, u) => ({ c: 0, h: Math.tanh(x(0, u) + h(0, u)) }),
  Relu: (x, h, u) => ({ c: 0, h: Math.max(0, x(0, u) + h(0, u)) }),
};

function layer(type: "LSTM" | "GRU" | "RNN", gates: number): Operator {
  const run = ({ inputs, attributes }: OperatorCall): PlainArray[] => {
    const [x, w, r, b, lengths, h0, c0] = inputs as PlainArray[];
    assert.ok(x && w && r && b && h0);
    requireDtypes([x, w, r, b, h0, ...(c0 ? [c0] : [])], floats);
    const [count, batch, width] = x.shape as [number, number, number];
    const hidden = Number(attributes["hidden_size"]);
    assert.deepEqual(w.shape, [1, gates * hidden, width]);
    assert.deepEqual(r.shape, [1, gates * hidden, hidden]);
    assert.deepEqual(b.shape, [1, 2 * gates * hidden]);
    assert.deepEqual(h0.shape, [1, batch, hidden]);
    if (type === "LSTM") assert.deepEqual(c0?.shape, [1, batch, hidden]);
    if (type === "GRU") assert.equal(attributes["linear_before_reset"], 1);
    if (lengths) assert.deepEqual([lengths.dtype, lengths.shape], ["i32", [batch]]);
    const isReversed = attributes["direction"] === "reverse";
    const step = steps[type === "RNN" ? (attributes["activations"] as readonly string[])[0]! : type]!;
    const units = Array.from({ length: hidden }, (_, unit) => unit);
    const all = new Map<string, number>();
    const last: States[] = [];
    for (let n = 0; n < batch; n++) {
      let state: States = {
        h: units.map((unit) => elementAt(h0, [0, n, unit])),
        c: units.map((unit) => (c0 ? elementAt(c0, [0, n, unit]) : 0)),
      };
      const length = lengths?.data[n] ?? count;
      for (let index = 0; index < length; index++) {
        const t = isReversed ? length - 1 - index : index;
        const old = state;
        const ofInput = (g: number, u: number): number => {
          let sum = b.data[g * hidden + u]!;
          for (let k = 0; k < width; k++)
            sum += elementAt(x, [t, n, k]) * elementAt(w, [0, g * hidden + u, k]);
          return sum;
        };
        const ofState = (g: number, u: number): number => {
          let sum = b.data[(gates + g) * hidden + u]!;
          for (const k of units) sum += old.h[k]! * elementAt(r, [0, g * hidden + u, k]);
          return sum;
        };
        const next = units.map((unit) => step(ofInput, ofState, unit, old));
        state = { h: next.map(({ h }) => h), c: next.map(({ c }) => c) };
        for (const unit of units) all.set(String([t, n, unit]), state.h[unit]!);
      }
      last.push(state);
    }
    return [
      generate(x.dtype, [count, 1, batch, hidden], ([t, , n, u]) => all.get(String([t, n, u])) ?? 0),
      generate(x.dtype, [1, batch, hidden], ([, n, u]) => last[n!]!.h[u!]!),
      ...(type === "LSTM" ? [generate(x.dtype, [1, batch, hidden], ([, n, u]) => last[n!]!.c[u!]!)] : []),
    ];
  };
  return {
    inputs: [6, type === "LSTM" ? 7 : 6],
    outputs: type === "LSTM" ? [3, 3] : [2, 2],
    attributes: {
      ...{ hidden_size: "int", direction: "text" },
      ...(type === "GRU" && { linear_before_reset: "int" as const }),
      ...(type === "RNN" && { activations: "texts" as const }),
    },
    run,
  };
}

export const recurrentOperators: Readonly<Record<string, Operator>> = {
  LSTM: layer("LSTM", 4),
  GRU: layer("GRU", 3),
  RNN: layer("RNN", 1),
};
