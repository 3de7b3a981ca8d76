export const CHANNEL = "dispatch_policy";

/** A message of this package's SQL to the tick loops. */
export interface Notification {
  readonly schema: string;
  readonly policy: string;
  /** Only the loop of this shard has something to do. */
  readonly shard?: string;
  /** The shard has no leader: its leader stepped down, or there was none. */
  readonly vacant?: boolean;
  /** Another definition is in force, which live workers had before. */
  readonly redefined?: boolean;
  /** The id of a job: does this pool still run it? */
  readonly runs?: number;
  /** Jobs of the policy were cancelled: those that run are told, and slots of others are freed. */
  readonly cancelled?: boolean;
  /** An error that nobody expects, in the small way of admission. A pass does its work. */
  readonly failed?: string;
}

/** Reads a notification. Undefined if it is none of this package's: anybody may use the channel. */
export function readNotification(payload: string | undefined, schema: string): Notification | undefined {
  try {
    const said = JSON.parse(payload ?? "");
    return said?.schema === schema ? said : undefined;
  } catch {
    return undefined;
  }
}
