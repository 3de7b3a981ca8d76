import { Body, ConflictException, Controller, Module, Post } from "@nestjs/common";
import { DatabaseError } from "pg";
import { sendWelcome } from "./policies.ts";
import { Transactions, TransactionsModule } from "./transactions.ts";

const UNIQUE_VIOLATION = "23505";

@Controller("sign-ups")
export class SignUps {
  constructor(private readonly transactions: Transactions) {}

  /** Signs a customer up, and adds the job that welcomes them: both, or neither. */
  @Post()
  async signUp(@Body() { customer }: { customer: string }): Promise<{ job: string }> {
    try {
      return await this.transactions.run(async ({ client, addJob }) => {
        const job = await addJob(sendWelcome, { customer });
        await client.query("insert into sign_ups (customer) values ($1)", [customer]);
        return { job: job.id };
      });
    } catch (error) {
      if (error instanceof DatabaseError && error.code === UNIQUE_VIOLATION)
        throw new ConflictException(`${customer} has signed up before`);
      throw error;
    }
  }
}

@Module({ imports: [TransactionsModule], controllers: [SignUps] })
export class SignUpsModule {}
