/** The WebAssembly encoder: its modules are valid and compute the right results. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { hasRelaxedSimd } from "./relaxed-simd.js";
import { type Code, encodeModule, signed, unsigned, type WasmFunction } from "./wasm.js";
import {
  type LaneOpcode,
  laneOpcodes,
  type MemoryOpcode,
  memoryOpcodes,
  type StackOpcode,
  stackOpcodes,
  type ValueType,
} from "./wasm-opcodes.js";

type Exported = (...args: number[]) => number;

function load(...functions: WasmFunction[]) {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
  const module = new WebAssembly.Module(encodeModule(functions));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return { memory, call: exports as Record<string, Exported> };
}

function decode(bytes: readonly number[], isSigned: boolean): number {
  let value = 0n;
  for (const [index, byte] of bytes.entries()) value |= BigInt(byte & 0x7f) << BigInt(7 * index);
  const bits = 7 * bytes.length;
  return Number(isSigned ? BigInt.asIntN(bits, value) : value);
}

test("LEB128 of any 32-bit number decodes to it, in the fewest bytes", () => {
  fc.assert(fc.property(fc.nat(0xffffffff), (value) => assert.equal(decode(unsigned(value), false), value)));
  fc.assert(fc.property(fc.integer(), (value) => assert.equal(decode(signed(value), true), value)));
  assert.deepEqual(unsigned(127), [0x7f]);
  assert.deepEqual(unsigned(128), [0x80, 0x01]);
  assert.deepEqual(signed(63), [0x3f]);
  assert.deepEqual(signed(64), [0xc0, 0x00]);
  assert.deepEqual(signed(-64), [0x40]);
  assert.deepEqual(signed(-(2 ** 31)), [0x80, 0x80, 0x80, 0x80, 0x78]);
});

test("constants of every type keep their value", () => {
  const constant = (name: string, type: ValueType, body: WasmFunction["body"]) =>
    ({ name, parameters: [], results: [type], body }) as const;
  fc.assert(
    fc.property(fc.integer(), fc.float(), fc.double(), (i, f, d) => {
      const { call } = load(
        constant("i", "i32", (code) => code.i32(i)),
        constant("f", "f32", (code) => code.f32(f)),
        constant("d", "f64", (code) => code.f64(d)),
      );
      assert.deepEqual([call["i"]!(), call["f"]!(), call["d"]!()], [i, f, d]);
    }),
    { numRuns: 50 },
  );
});

test("a loop with locals, a block and branches counts correctly", () => {
  const { call } = load({
    name: "sumTo",
    parameters: ["i32"],
    results: ["i32"],
    body: (code) => {
      const left = code.parameter(0);
      const total = code.local("i32");
      code.block((leave) => {
        code.loop((again) => {
          code.get(left).op("i32.eqz").branchIf(leave);
          code.get(total).get(left).op("i32.add").set(total);
          code.get(left).i32(-1).op("i32.add").set(left).branch(again);
        });
      });
      code.get(total);
    },
  });
  assert.equal(call["sumTo"]!(100), 5050);
  assert.equal(call["sumTo"]!(0), 0);
});

test("`if` runs one of its two branches, and functions call each other by name", () => {
  const { call } = load(
    {
      name: "larger",
      parameters: ["f64", "f64"],
      results: ["f64"],
      body: (code) => {
        const local = code.local("f64");
        const [a, b] = [code.parameter(0), code.parameter(1)];
        code.get(a).get(b).op("f64.gt");
        code.if(
          () => code.get(a).set(local),
          () => code.get(b).set(local),
        );
        code.get(local);
      },
    },
    {
      name: "largerHalved",
      parameters: ["f64", "f64"],
      results: ["f64"],
      body: (code) =>
        code.get(code.parameter(0)).get(code.parameter(1)).call("larger").f64(0.5).op("f64.mul"),
    },
  );
  assert.equal(call["larger"]!(2, 7), 7);
  assert.equal(call["larger"]!(9, 7), 9);
  assert.equal(call["largerHalved"]!(2, 7), 3.5);
});

test("loads and stores use address plus offset, and a vector's lanes keep their order", () => {
  const { memory, call } = load({
    name: "lanes",
    parameters: ["i32"],
    results: ["f32"],
    body: (code) => {
      const lanes = code.local("v128");
      code.get(code.parameter(0)).memory("v128.load", 16).set(lanes);
      code.get(code.parameter(0));
      code.get(lanes).get(lanes).op("f32x4.mul").memory("v128.store", 32);
      code.get(lanes).lane("f32x4.extract_lane", 3);
    },
  });
  const floats = new Float32Array(memory.buffer);
  floats.set([1, 2, 3, 4], 8);
  assert.equal(call["lanes"]!(16), 4);
  assert.deepEqual([...floats.slice(12, 16)], [1, 4, 9, 16]);
});

interface Signature {
  readonly takes: readonly ValueType[];
  readonly gives: readonly ValueType[];
}

const specialSignatures: Partial<Record<StackOpcode, Signature>> = {
  unreachable: { takes: [], gives: [] },
  return: { takes: [], gives: [] },
  drop: { takes: ["i32"], gives: [] },
  select: { takes: ["f32", "f32", "i32"], gives: ["f32"] },
  "v128.any_true": { takes: ["v128"], gives: ["i32"] },
  "i32x4.all_true": { takes: ["v128"], gives: ["i32"] },
  "v128.bitselect": { takes: ["v128", "v128", "v128"], gives: ["v128"] },
  "memory.copy": { takes: ["i32", "i32", "i32"], gives: [] },
  "memory.fill": { takes: ["i32", "i32", "i32"], gives: [] },
};

const unary = /^(abs|neg|sqrt|ceil|floor|trunc|nearest|not)$/;
const comparison = /^(eq|ne|[lg][te])(_[su])?$/;
const conversion = /^(convert|promote|demote|reinterpret|trunc_sat|extend|wrap)_/;

/** The operand and result types of each stack instruction, from its name. The engine checks the bytes against them. */
function signatureOf(name: StackOpcode): Signature {
  const special = specialSignatures[name];
  if (special) return special;
  const [prefix = "", operation = ""] = name.split(".");
  const isVector = prefix.includes("x") || prefix === "v128";
  const type = isVector ? "v128" : (prefix as ValueType);
  if (operation === "splat") return { takes: [prefix.slice(0, 3) as ValueType], gives: ["v128"] };
  if (operation.startsWith("relaxed_")) return { takes: [type, type, type], gives: [type] };
  if (conversion.test(operation)) {
    const from = /[if](32|64)/.exec(operation)?.[0] as ValueType;
    return { takes: [isVector ? "v128" : from], gives: [type] };
  }
  if (operation === "eqz") return { takes: [type], gives: ["i32"] };
  if (unary.test(operation)) return { takes: [type], gives: [type] };
  if (isVector && /^sh[lr]/.test(operation)) return { takes: [type, "i32"], gives: [type] };
  const isTest = comparison.test(operation) && !isVector;
  return { takes: [type, type], gives: [isTest ? "i32" : type] };
}

/** True if the engine accepts a function of this type with the instructions that `act` appends. */
function isValid({ takes, gives }: Signature, act: (code: Code) => void): boolean {
  const body = (code: Code) => {
    for (const index of takes.keys()) code.get(code.parameter(index));
    act(code);
  };
  return WebAssembly.validate(encodeModule([{ name: "probe", parameters: takes, results: gives, body }]));
}

test("the engine accepts every instruction of the table with its type", () => {
  for (const name of Object.keys(stackOpcodes) as StackOpcode[]) {
    if (name.includes("relaxed") && !hasRelaxedSimd()) continue;
    assert.ok(
      isValid(signatureOf(name), (code) => code.op(name)),
      name,
    );
  }
  for (const name of Object.keys(memoryOpcodes) as MemoryOpcode[]) {
    const type = name.split(".")[0] as ValueType;
    const signature: Signature = name.includes("store")
      ? { takes: ["i32", type], gives: [] }
      : { takes: ["i32"], gives: [type] };
    assert.ok(
      isValid(signature, (code) => code.memory(name, 1000)),
      name,
    );
  }
  for (const name of Object.keys(laneOpcodes) as LaneOpcode[]) {
    const scalar = name.slice(0, 3) as ValueType;
    const signature: Signature = name.endsWith("extract_lane")
      ? { takes: ["v128"], gives: [scalar] }
      : { takes: ["v128", scalar], gives: ["v128"] };
    assert.ok(
      isValid(signature, (code) => code.lane(name, 1)),
      name,
    );
  }
});

test("the engine rejects an instruction with another type", () => {
  assert.ok(!isValid({ takes: ["v128"], gives: ["f32"] }, (code) => code.op("f32x4.neg")));
  assert.ok(
    !isValid({ takes: ["v128", "f64"], gives: ["v128"] }, (code) => code.lane("f32x4.replace_lane", 1)),
  );
});

test("a shuffle selects 32-bit lanes from two vectors", () => {
  const { memory, call } = load({
    name: "shuffle",
    parameters: [],
    results: [],
    body: (code) =>
      code
        .i32(32)
        .i32(0)
        .memory("v128.load")
        .i32(16)
        .memory("v128.load")
        .shuffle([2, 6, 3, 7])
        .memory("v128.store"),
  });
  const words = new Int32Array(memory.buffer);
  words.set([0, 1, 2, 3, 4, 5, 6, 7]);
  call["shuffle"]!();
  assert.deepEqual([...words.slice(8, 12)], [2, 6, 3, 7]);
});

test("float arithmetic gives the results of JavaScript", () => {
  const operations = {
    "f32.add": (a: number, b: number) => a + b,
    "f32.sub": (a: number, b: number) => a - b,
    "f32.mul": (a: number, b: number) => a * b,
    "f32.div": (a: number, b: number) => a / b,
    "f32.min": Math.min,
    "f32.max": Math.max,
  } as const;
  for (const [name, expected] of Object.entries(operations)) {
    const { call } = load({
      name: "probe",
      parameters: ["f32", "f32"],
      results: ["f32"],
      body: (code) =>
        code
          .get(code.parameter(0))
          .get(code.parameter(1))
          .op(name as keyof typeof operations),
    });
    fc.assert(
      fc.property(fc.float(), fc.float(), (a, b) =>
        assert.equal(call["probe"]!(a, b), Math.fround(expected(a, b))),
      ),
      { numRuns: 50 },
    );
  }
});

test("a branch to a block that has ended, a missing parameter and an unknown function are named", () => {
  const encode = (body: WasmFunction["body"]) => () =>
    encodeModule([{ name: "wrong", parameters: ["i32"], results: [], body }]);
  const forkStreams = encode((code) => {
    code.block((gone) => {
      code.block(() => code);
      code.block((inner) => code.branch(inner));
      code.branch(gone);
    });
  });
  assert.ok(WebAssembly.validate(forkStreams()));
  const branchAfter = encode((code) => {
    let local = { depth: 0 };
    code.block((label) => {
      local = label;
    });
    code.block(() => code.branch(local));
  });
  assert.throws(branchAfter, { code: "BAD_ARGUMENT", message: /"wrong" branches to a block that has ended/ });
  assert.throws(
    encode((code) => code.parameter(1)),
    { code: "BAD_ARGUMENT", message: /no parameter 1; it declares 1/ },
  );
  assert.throws(
    encode((code) => code.call("exp")),
    { code: "BAD_ARGUMENT", message: /calls "exp"/ },
  );
});
