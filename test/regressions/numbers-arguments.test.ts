/** Row N9, on the device: a kernel gets each of its arguments unchanged, whatever its type and its position. */

import type { Driver, KernelSource, Launch, Stream } from "holdfast/internals";
import { encodeKernel, interceptCalls } from "../../src/driver/index.js";
import { regressionRow } from "../support/regressions.js";
import { withRuntime } from "../support/runtimes.js";
import { sameBytes } from "../support/same-bytes.js";

/** Distinctive numbers: signs, high bits and fractions that another type would lose. */
const sentinels = { i32: -123_456_789, u32: 0xfedc_ba98, f32: Math.fround(1.618034), f64: Math.E * 1e200 };

const parameters = ["f64", "out", "i32", "f32", "u32", "in", "f32", "f64", "i32"] as const;
/** The byte offset at which a kernel stores each scalar, with the store instruction. */
const scalars = [
  { argument: 0, type: "f64", at: 0 },
  { argument: 7, type: "f64", at: 8 },
  { argument: 2, type: "i32", at: 16 },
  { argument: 3, type: "f32", at: 20 },
  { argument: 4, type: "i32", at: 24 },
  { argument: 6, type: "f32", at: 28 },
  { argument: 8, type: "i32", at: 32 },
] as const;
const inputAt = 36;
const noteBytes = 40;

const cudaTypes = { f64: "double", f32: "float", i32: "int" } as const;

const noteArguments: KernelSource = {
  ...encodeKernel({
    name: "noteArguments",
    parameters,
    body(code, argument) {
      const address = (at: number) => code.get(argument(1)).i32(at).op("i32.add");
      for (const { argument: index, type, at } of scalars) {
        address(at);
        code.get(argument(index)).memory(`${type}.store`);
      }
      address(inputAt);
      code.get(argument(5)).memory("i32.load").memory("i32.store");
    },
  }),
  cuda: {
    entry: "hf_noteArguments",
    threads: 32,
    code: `extern "C" __global__ void __launch_bounds__(32) hf_noteArguments(double a0, char* out, int a2, float a3, unsigned a4, const int* in, float a6, double a7, int a8) {
  if (threadIdx.x > 0u) return;
${scalars.map(({ argument, type, at }) => `  *reinterpret_cast<${cudaTypes[type]}*>(out + ${at}) = a${argument};`).join("\n")}
  *reinterpret_cast<int*>(out + ${inputAt}) = *in;
}
`,
  },
};

/** A driver that gets other types than the kernel takes. */
const declaring =
  (argument: number, type: "u32") =>
  (device: Driver): Driver =>
    interceptCalls(device, (call, args, proceed) => {
      if (call !== "loadKernel") return proceed();
      const source = args[0] as KernelSource;
      return device.loadKernel({ ...source, parameters: source.parameters.with(argument, type) });
    });

/** A driver that swaps two arguments of the kernel. */
const swapping =
  (first: number, other: number) =>
  (device: Driver): Driver =>
    interceptCalls(device, (call, args, proceed) => {
      if (call !== "launch") return proceed();
      const [stream, launch] = args as [Stream, Launch];
      const values = launch.arguments;
      return device.launch(stream, {
        ...launch,
        arguments: values.with(first, values[other]!).with(other, values[first]!),
      });
    });

regressionRow<(device: Driver) => Driver>({
  row: "N9",
  rule: "a kernel's arguments arrive byte for byte: a mix of integers, floats, doubles and addresses",
  sound: (device) => device,
  faults: {
    "a float is passed as an integer": declaring(3, "u32"),
    "two of the same type are swapped": swapping(2, 8),
  },
  check(wrap) {
    withRuntime(
      { memory: "64MiB" },
      ({ runtime }) => {
        const { i32, u32, f32, f64 } = sentinels;
        const actual = runtime.step(() => {
          const note = runtime.arena.allocate(noteBytes, "note");
          const input = runtime.arena.allocate(4, "input");
          runtime.upload([{ source: Int32Array.of(271_828), target: input }]);
          const kernel = runtime.kernel(noteArguments);
          const args = [f64, note, i32, f32, u32, input, -f32, -f64, -i32];
          runtime.launch({ op: "note", kernel, blocks: 1, arguments: args });
          return runtime.read(note);
        });
        const expected = new DataView(new ArrayBuffer(noteBytes));
        expected.setFloat64(0, f64, true);
        expected.setFloat64(8, -f64, true);
        expected.setInt32(16, i32, true);
        expected.setFloat32(20, f32, true);
        expected.setUint32(24, u32, true);
        expected.setFloat32(28, -f32, true);
        expected.setInt32(32, -i32, true);
        expected.setInt32(inputAt, 271_828, true);
        sameBytes(actual, expected, "what arrived");
      },
      wrap,
    );
  },
});
