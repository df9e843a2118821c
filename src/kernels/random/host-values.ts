/** Values of distributions on the host, by the WebAssembly kernels: for values that are needed before a device is known. */

import type { Distribution } from "./distribution.js";
import type { RandomStream } from "./random-stream.js";
import { valueKernel, valueLaunch, valuesPerBlock } from "./value-kernel.js";

/** The values of one call, which fit into a processor's cache. */
const valuesPerCall = 64 * valuesPerBlock;
const pageBytes = 65_536;
const maximumPages = 65_536;

/** The arguments are a range of blocks, an address and the kernel's scalars. */
type HostKernel = (...numbers: number[]) => void;

let memory: WebAssembly.Memory | undefined;
const kernels = new Map<Distribution["kind"], HostKernel>();

/**
 * The first `count` values of a stream, with the bits of `drawValues`.
 *
 * ```js
 * drawHostValues({ kind: "normal", mean: 0, std: 0.02 }, { seed: 42, id: 1 }, 4);
 * ```
 */
export function drawHostValues(
  distribution: Distribution,
  stream: RandomStream,
  count: number,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(count);
  memory ??= new WebAssembly.Memory({
    initial: (4 * valuesPerCall) / pageBytes,
    maximum: maximumPages,
    shared: true,
  });
  const drawn = new Float32Array(memory.buffer);
  const kernel = kernelOf(distribution.kind, memory);
  for (let first = 0; first < count; first += valuesPerCall) {
    const range = { first, count: Math.min(valuesPerCall, count - first) };
    const { blocks, scalars } = valueLaunch(distribution, stream, range);
    kernel(0, blocks, 0, ...scalars);
    values.set(drawn.subarray(0, range.count), first);
  }
  return values;
}

function kernelOf(kind: Distribution["kind"], memory: WebAssembly.Memory): HostKernel {
  const cached = kernels.get(kind);
  if (cached) return cached;
  const { name, wasm = new Uint8Array() } = valueKernel(kind, "f32");
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(wasm), { env: { memory } });
  const kernel = exports[name] as HostKernel;
  kernels.set(kind, kernel);
  return kernel;
}
