//! The whole room from outside: who gets in where, who stays, what is asked of others (admin.md §12).

mod admission;
mod hostile;
mod outside;
mod staying;
