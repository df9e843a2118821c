/** A kernel of which only the parameters are known, such as a scan. */

import type { Kernel } from "../../../driver/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface LaunchCall {
  readonly kind: "launch";
  readonly kernel: Kernel;
  readonly blocks: number;
  readonly arguments: readonly (BufferSlice | number)[];
}

export const launch: Kind<LaunchCall> = {
  accesses: ({ kernel, arguments: values }) =>
    values.flatMap((value, index) =>
      typeof value === "number" ? [] : [accessOf(value, kernel.parameters[index] ?? "inout")],
    ),
  mapSlices: (work, to) => ({
    ...work,
    arguments: work.arguments.map((value) => (typeof value === "number" ? value : to(value))),
  }),
  key({ kernel, blocks, arguments: values }, { read, written, literal, identity }) {
    const texts = values.map((value, index) => {
      if (typeof value === "number") return literal(value);
      const parameter = kernel.parameters[index];
      return parameter === "out" || parameter === "partial-out" ? written(value) : read(value);
    });
    return `${identity(kernel)} ${blocks} ${texts.join(" ")}`;
  },
  name: ({ kernel }) => kernel.name,
  shape: ({ blocks }) => `${blocks} ${blocks === 1 ? "block" : "blocks"}`,
  prefetchable: ({ kernel: { early = [] }, arguments: values }) =>
    early.map((index) => values[index]).filter((value) => typeof value === "object"),
  alwaysPrefetches: true,
  // Its kernel was loaded when the step was traced.
  emit({ kernel, blocks, arguments: values }, { op, resolve }) {
    const resolved = values.map((value) => (typeof value === "number" ? value : resolve(value)));
    return [{ kind: "launch", request: { op, kernel, blocks, arguments: resolved } }];
  },
};
