/** A fill of memory with one byte value. */

import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface FillCall {
  readonly kind: "fill";
  readonly target: BufferSlice;
  readonly byte: number;
}

export const fill: Kind<FillCall> = {
  accesses: ({ target }) => [accessOf(target, "out")],
  mapSlices: (work, to) => ({ ...work, target: to(work.target) }),
  key: ({ target, byte }, { written }) => `${byte} ${written(target)}`,
  name: ({ byte }) => `fill ${byte}`,
  shape: () => "",
  emit: ({ target, byte }, { resolve }) => [{ kind: "fill", target: resolve(target), byte }],
  isLaunched: () => false,
};
