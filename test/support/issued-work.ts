/** The commands that a function issues on a runtime, for tests that count launches. */

import type { LoadedCommand, Runtime } from "../../src/runtime/index.js";
import { withMethods } from "./replaced-methods.js";

/** In order; they still run. `body` receives the list that grows meanwhile. */
export function issuedBy(
  runtime: Runtime,
  body: (issued: readonly LoadedCommand[]) => void,
): readonly LoadedCommand[] {
  const issued: LoadedCommand[] = [];
  const launch = runtime.launch.bind(runtime);
  const fill = runtime.fill.bind(runtime);
  const copy = runtime.copy.bind(runtime);
  const noting: Partial<Runtime> = {
    launch: (request) => {
      launch(request);
      issued.push({ kind: "launch", request });
    },
    fill: (target, byte) => {
      fill(target, byte);
      issued.push({ kind: "fill", target, byte });
    },
    copy: (target, source) => {
      copy(target, source);
      issued.push({ kind: "copy", target, source });
    },
  };
  withMethods(runtime, noting, () => body(issued));
  return issued;
}
