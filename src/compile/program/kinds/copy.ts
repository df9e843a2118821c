/** A copy of bytes. */

import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface CopyCall {
  readonly kind: "copy";
  readonly target: BufferSlice;
  readonly source: BufferSlice;
}

export const copy: Kind<CopyCall> = {
  accesses: ({ source, target }) => [accessOf(source, "in"), accessOf(target, "out")],
  mapSlices: ({ target, source }, to) => ({ kind: "copy", target: to(target), source: to(source) }),
  key: ({ source, target }, { read, written }) => `${read(source)} ${written(target)}`,
  name: () => "copy",
  shape: () => "",
  emit: ({ target, source }, { resolve }) => [
    { kind: "copy", target: resolve(target), source: resolve(source) },
  ],
  isLaunched: () => false,
};
