/** files: opens and reads regular files within limits, for files that other programs may have written. */

export { isPrivate } from "./ownership.js";
export {
  type OpenedFile,
  openRegularFile,
  readRegularFile,
  readSpan,
  readTail,
} from "./regular-files.js";
