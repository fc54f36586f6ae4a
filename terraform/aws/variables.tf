# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

variable "bucket" {
  description = "Name of the bucket to make. Give each team a bucket of its own; runs share one."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket)) && !endswith(var.bucket, "--x-s3")
    error_message = "A bucket name has 3 to 63 lower-case letters, digits, dots and hyphens; a directory bucket is express_zone_id."
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

variable "name" {
  description = "What the names of policies and roles begin with; null for the bucket's name."
  type        = string
  default     = null

  validation {
    condition     = var.name == null || can(regex("^[A-Za-z0-9+=,.@_-]{1,40}$", var.name))
    error_message = "A name has 1 to 40 letters, digits and +=,.@_-, so that the name of a role stays within IAM's 64."
  }
}

variable "partition" {
  description = "Partition of the ARNs: aws, aws-cn, aws-us-gov."
  type        = string
  default     = "aws"

  validation {
    condition     = can(regex("^aws(-[a-z]+)*$", var.partition))
    error_message = "A partition is aws, aws-cn, aws-us-gov or the like."
  }
}

variable "encryption" {
  description = "How objects are encrypted at rest: AES256 with S3's keys, or aws:kms with a key of this account."
  type        = string
  default     = "aws:kms"

  validation {
    condition     = contains(["AES256", "aws:kms"], var.encryption)
    error_message = "encryption is AES256 or aws:kms."
  }
}

variable "kms_key_arn" {
  description = "ARN of an existing KMS key for aws:kms; null to have one made."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "The key is named by the ARN of a key, not by an alias."
  }
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

variable "versioning" {
  description = "Whether the bucket keeps old versions. Objects here are never overwritten with other bytes, so it only guards against removal."
  type        = bool
  default     = false
}

variable "noncurrent_version_days" {
  description = "Days after which old versions are removed, where versioning is on or once was."
  type        = number
  default     = 7

  validation {
    condition     = var.noncurrent_version_days >= 1 && floor(var.noncurrent_version_days) == var.noncurrent_version_days
    error_message = "A whole number of days, 1 or more."
  }
}

variable "access_log_bucket" {
  description = "Name of an existing bucket that takes S3's access logs; null for none. It costs one log line for each request."
  type        = string
  default     = null
}

variable "express_zone_id" {
  description = "Id of an availability zone, as use1-az4, to make an S3 Express directory bucket there as well; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.express_zone_id == null || can(regex("^[a-z0-9]+-az[0-9]+$", var.express_zone_id))
    error_message = "The id of a zone is like use1-az4; us-east-1a is a name."
  }
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

variable "irsa" {
  description = "The cluster's OIDC provider and, by identity, the service accounts that may take its role; null without IRSA."
  type = object({
    oidc_provider_arn = string
    namespace         = string
    service_accounts  = map(string)
  })
  default = null
}

variable "trusted_principals" {
  description = "By identity, the ARNs of IAM principals that may assume its role."
  type        = map(list(string))
  default     = {}
}

variable "force_destroy" {
  description = "Whether destroying the bucket removes what it holds."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of everything that takes tags."
  type        = map(string)
  default     = {}
}
