/** Copies a tensor of a file to a placed parameter in pieces, so that the host holds a few megabytes at a time. */

import { noGrad, noteWrite } from "../../autograd/index.js";
import { type Dtype, dtypes, viewElements } from "../../ir/index.js";
import type { Parameter } from "../../nn/index.js";
import { elementsAs } from "../../tensor/index.js";
import { MiB } from "../../units/index.js";
import type { MatchedTensor } from "./match-tensors.js";

/** Bytes of a file that are read at a time. */
export const pieceBytes = 8 * MiB;

/** Reads a tensor's values and writes them to its parameter, in the parameter's dtype. `scratch` holds a piece. */
export function writeParameter(match: MatchedTensor, scratch: Uint8Array): void {
  if (match.isTransposed) writeTransposed(match, scratch);
  else writeInOrder(match, scratch);
}

function writeInOrder({ parameter, tensor, file, dtype }: MatchedTensor, scratch: Uint8Array): void {
  const { device, array, numel } = parameter;
  const { storage } = array;
  if (!storage) return;
  const [from, to] = [dtypes[dtype].bytes, dtypes[parameter.dtype].bytes];
  const piece = Math.floor(scratch.length / from);
  for (let first = 0; first < numel; first += piece) {
    const count = Math.min(piece, numel - first);
    const bytes = scratch.subarray(0, count * from);
    file.read(tensor, first * from, bytes);
    const source = elementsAs({ dtype, shape: [count], bytes }, parameter.dtype);
    const target = device.runtime.view(storage, first * to, count * to);
    device.runtime.upload([{ source, target }]);
  }
  noteWrite(storage);
}

/** The file has rows [in, out]. Each piece is transposed on the device. */
function writeTransposed({ parameter, tensor, file, dtype }: MatchedTensor, scratch: Uint8Array): void {
  const { device } = parameter;
  const [rows = 0, columns = 0] = tensor.shape;
  const rowBytes = columns * dtypes[dtype].bytes;
  const piece = Math.max(1, Math.floor(scratch.length / rowBytes));
  const space = rowBytes > scratch.length ? new Uint8Array(rowBytes) : scratch;
  for (let first = 0; first < rows; first += piece) {
    const count = Math.min(piece, rows - first);
    const bytes = space.subarray(0, count * rowBytes);
    file.read(tensor, first * rowBytes, bytes);
    const shape = [count, columns];
    device.step(() =>
      noGrad(() => {
        const { buffer, byteOffset, byteLength } = elementsAs({ dtype, shape, bytes }, wide(parameter));
        const values = viewElements(wide(parameter), new Uint8Array(buffer, byteOffset, byteLength));
        const stored = device.fromHost(values, shape, parameter.dtype, tensor.name);
        parameter.narrow(1, first, count).copy_(stored.t());
      }),
    );
  }
}

/** The dtype of host values that represents those of a parameter exactly. */
function wide({ dtype }: Parameter): Extract<Dtype, "f32" | "f64"> {
  return dtype === "f64" ? "f64" : "f32";
}
