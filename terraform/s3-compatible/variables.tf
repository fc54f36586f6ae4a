# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

variable "bucket" {
  description = "Name of the bucket to make."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "A bucket name has 3 to 63 lower-case letters, digits, dots and hyphens."
  }
}

variable "prefix" {
  description = "What comes after the bucket in the store's url, as rl in s3://bucket/rl; empty for the whole bucket."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?$", var.prefix))
    error_message = "The prefix is a path such as team/rl, without a slash at either end and without wildcards."
  }
}

variable "endpoint" {
  description = "The server's address as the run's processes reach it, for the outputs; the provider has its own."
  type        = string

  validation {
    condition     = can(regex("^https?://[^/]+$", var.endpoint))
    error_message = "An endpoint is like https://s3.example.net:9000, without a path."
  }
}

variable "region" {
  description = "The region that the server believes to be in."
  type        = string
  default     = "us-east-1"
}

variable "makes_users" {
  description = "Whether the server speaks the IAM API (SeaweedFS, Ceph), so that users can be made; MinIO does not."
  type        = bool
  default     = true
}

variable "model_server_retires_ledgers" {
  description = "Whether trainers retire ledgers through a model server's control routes, so that it must do the work."
  type        = bool
  default     = false
}

variable "sweeper_removes_runs" {
  description = "Whether the sweeper also removes whole runs, as gc --expire-after does; without it, only what nothing refers to."
  type        = bool
  default     = false
}

variable "makes_lifecycle" {
  description = "Whether the server takes lifecycle rules."
  type        = bool
  default     = true
}

variable "retention_days" {
  description = "Days after which objects of each family expire, whatever their state; null to keep them. A backstop for what nobody cleans."
  type = object({
    captures  = optional(number, 90)
    tokens    = optional(number, 90)
    staged    = optional(number, 90)
    ledger    = optional(number, 90)
    manifests = optional(number, 365)
  })
  default = {}

  validation {
    condition     = alltrue([for days in values(var.retention_days) : days == null || try(days >= 30 && floor(days) == days, false)])
    error_message = "Retention is a whole number of days, 30 or more: it must outlast every rollout with its training, or readers meet parts of rollouts."
  }
}

variable "aborted_upload_days" {
  description = "Days after which the parts of an unfinished multipart upload are removed."
  type        = number
  default     = 2

  validation {
    condition     = var.aborted_upload_days >= 1 && floor(var.aborted_upload_days) == var.aborted_upload_days
    error_message = "A whole number of days, 1 or more."
  }
}

variable "force_destroy" {
  description = "Whether destroying the bucket removes what it holds."
  type        = bool
  default     = false
}
