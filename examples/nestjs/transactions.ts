import { Inject, Injectable, Module, type OnApplicationShutdown } from "@nestjs/common";
import {
  type AnyPolicy,
  addPolicyJob,
  type JobSpec,
  type PolicyPayload,
  type StagedJob,
} from "graphile-worker-dispatch-policy";
import pg from "pg";

/** What a piece of work in one transaction gets. */
export interface Transaction {
  readonly client: pg.PoolClient;
  /** Adds a job that belongs to this transaction: it is there if the transaction commits. */
  addJob<P extends AnyPolicy>(policy: P, payload: PolicyPayload<P>, spec?: JobSpec): Promise<StagedJob>;
}

/** The application's database. A pool cannot be mistaken for the transaction here, because nobody gets the pool. */
@Injectable()
export class Transactions implements OnApplicationShutdown {
  constructor(@Inject(pg.Pool) private readonly pool: pg.Pool) {}

  async run<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const client = await this.pool.connect();
    try {
      await client.query("begin");
      const result = await work({
        client,
        addJob: (policy, payload, spec) => addPolicyJob(client, policy, payload, spec),
      });
      await client.query("commit");
      return result;
    } catch (error) {
      await client.query("rollback");
      throw error;
    } finally {
      client.release();
    }
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }
}

/** Import it where jobs are added. */
@Module({
  providers: [
    {
      provide: pg.Pool,
      useFactory: () => {
        const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
        return new pg.Pool({ connectionString }).on("error", console.error);
      },
    },
    Transactions,
  ],
  exports: [Transactions],
})
export class TransactionsModule {}
