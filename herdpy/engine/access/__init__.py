"""Roles, grants, passwords: who may do what, and the system tables that show it."""
