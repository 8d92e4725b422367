"""The ledger client: carries out the actions of the machines over asyncio."""
