"""What people see: text and, later, pictures and pages."""
