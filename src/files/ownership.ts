/** Whose a file or a folder is. What is loaded from a cache steers a training, so only this user may have written it. */

/** This user's, and nobody else may write there. Never so where the system has no owners. */
export function isOwn({ uid, mode }: { readonly uid: number; readonly mode: number }): boolean {
  return uid === process.getuid?.() && (mode & 0o022) === 0;
}
