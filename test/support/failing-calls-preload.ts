/** For `node --import`: the program that is loaded after this meets the fault in the variable TEST_FAULT, which is JSON. */

import { type Fault, withFault } from "./failing-calls.js";

const fault = JSON.parse(process.env["TEST_FAULT"] ?? "{}") as Fault;
await new Promise<void>((isInPlace) => {
  // It stays for as long as the process lives.
  void withFault(fault, () => {
    isInPlace();
    return new Promise(() => undefined);
  });
});
