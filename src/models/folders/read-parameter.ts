/** Reads a placed parameter back in pieces, in the layout and dtype of a file. */

import { noGrad } from "../../autograd/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { Parameter } from "../../nn/index.js";
import { elementsAs, encodeElements } from "../../tensor/index.js";

export interface ParameterToRead {
  readonly parameter: Parameter;
  /** The dtype of the file. */
  readonly dtype: Dtype;
  /** True if the file has [in, out]. */
  readonly isTransposed: boolean;
}

/** The bytes of a parameter in a file, about `pieceBytes` at a time. */
export function readParameter(read: ParameterToRead, pieceBytes: number): Generator<Uint8Array> {
  return read.isTransposed ? readTransposed(read, pieceBytes) : readInOrder(read, pieceBytes);
}

function* readInOrder({ parameter, dtype }: ParameterToRead, pieceBytes: number): Generator<Uint8Array> {
  const { device, array, numel } = parameter;
  const from = dtypes[parameter.dtype].bytes;
  const piece = Math.floor(pieceBytes / from);
  for (let first = 0; first < numel && array.storage; first += piece) {
    const count = Math.min(piece, numel - first);
    const bytes = device.runtime.read(device.runtime.view(array.storage, first * from, count * from));
    yield asBytes(elementsAs({ dtype: parameter.dtype, shape: [count], bytes }, dtype));
  }
}

/** The rows of the file are columns of the parameter, [out, in]. */
function* readTransposed({ parameter, dtype }: ParameterToRead, pieceBytes: number): Generator<Uint8Array> {
  const { device, shape } = parameter;
  const [columns = 0, rows = 0] = shape;
  const piece = Math.max(1, Math.floor(pieceBytes / (columns * dtypes[parameter.dtype].bytes)));
  for (let first = 0; first < rows; first += piece) {
    const count = Math.min(piece, rows - first);
    const values = device.step(() =>
      noGrad(() => device.readExact(parameter.narrow(1, first, count).t().contiguous())),
    );
    yield asBytes(encodeElements(values, dtype));
  }
}

function asBytes({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
